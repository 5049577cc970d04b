"""The client of the API server.

It lists and watches Services, EndpointSlices, ServiceCIDRs and this machine's Node, decodes JSON directly into the
structs of ``knft.model.objects``, and posts events. It knows nothing about rules. A process that is running survives
any failure of the API server: requests are retried, and the rules stay.
"""
