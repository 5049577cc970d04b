"""Explains Services without rules: headless ones, those of other proxies, too large ones."""

from collections.abc import Iterable

from knft.explain.sentences import Sentence, Statement, state
from knft.families import Family
from knft.model.addresses import canonical_text
from knft.model.objects import Service
from knft.track.expand import expand_service
from knft.track.size_limits import frontends_error


def unserved_reason(service: Service) -> Statement | None:
    """Return why knft has no rules for a Service, None if it may have some."""
    name, spec = service.key, service.spec
    proxy = service.metadata.proxy_labels.proxy_name
    if proxy is not None:
        return state(Sentence.OTHER_PROXY, service=name, proxy=proxy)
    if spec.type == "ExternalName":
        return state(Sentence.EXTERNAL_NAME, service=name)
    if spec.cluster_ip == "None":
        return state(Sentence.HEADLESS, service=name)
    if not spec.ports:
        return state(Sentence.NO_PORTS, service=name)
    error = frontends_error(service)
    if error:
        return state(Sentence.TOO_MANY_FRONTENDS, service=name, error=error)
    return None if _has_cluster_ip(service, Family) else state(Sentence.NO_CLUSTER_IP, service=name)


def services_at(address: str, services: Iterable[Service]) -> tuple[Service, ...]:
    """Return the Services that have an address as cluster IP or external IP, whether knft serves them or not."""
    found = (each for each in services if address in map(canonical_text, _addresses(each)))
    return tuple(sorted(found, key=lambda each: each.key))


def proxied_at(address: str, services: Iterable[Service]) -> Statement | None:
    """Return which Service has an address as load balancer IP whose packets the load balancer itself handles."""
    for service in sorted(services, key=lambda each: each.key):
        status = service.status.load_balancer if service.status is not None else None
        for ingress in (status.ingress or ()) if status is not None else ():
            if ingress.ip_mode == "Proxy" and ingress.ip and canonical_text(ingress.ip) == address:
                return state(Sentence.PROXY_MODE, address=address, service=service.key)
    return None


def _addresses(service: Service) -> Iterable[str]:
    spec = service.spec
    cluster_ip = (spec.cluster_ip,) if spec.cluster_ip else ()
    return (*cluster_ip, *(spec.cluster_ips or ()), *(spec.external_ips or ()))


def _has_cluster_ip(service: Service, families: Iterable[Family]) -> bool:
    return any(expand_service(service, family) for family in families)
