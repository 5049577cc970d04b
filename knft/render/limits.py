"""What a Service asks for and knft does not do yet: said, never passed over in silence."""

from knft.model.plan import ServicePlan


def not_yet(plan: ServicePlan) -> tuple[str, ...]:
    """Return a sentence for each wish of the Service port that is not fulfilled."""
    port, found = plan.port, []
    if port.affinity_seconds:
        found.append(f"{plan.name}: sessionAffinity ClientIP is not kept yet; connections are spread at random")
    if port.load_balancer_vips and port.load_balancer_source_ranges:
        found.append(f"{plan.name}: loadBalancerSourceRanges is not kept yet; its load balancer VIPs are not served")
    return tuple(found)
