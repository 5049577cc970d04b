"""Tables of programs that run beside a Service proxy, as these programs create them; the addresses are examples.

docker: dockerd 29 with its nftables backend. netavark: podman 5. firewalld: 2.x, two zones. flannel: with
``EnableNFTables``. host: a firewall like the examples of distributions, with additional restrictions.
"""

DOCKER = """
table ip docker-bridges {
    map filter-forward-in-jumps { type ifname : verdict;
        elements = { "docker0" : jump filter-forward-in__docker0, "br-shop" : jump filter-forward-in__br-shop } }
    map filter-forward-out-jumps { type ifname : verdict;
        elements = { "docker0" : jump filter-forward-out__docker0, "br-shop" : jump filter-forward-out__br-shop } }
    map nat-postrouting-in-jumps { type ifname : verdict;
        elements = { "docker0" : jump nat-postrouting-in__docker0, "br-shop" : jump nat-postrouting-in__br-shop } }
    map nat-postrouting-out-jumps { type ifname : verdict;
        elements = { "docker0" : jump nat-postrouting-out__docker0, "br-shop" : jump nat-postrouting-out__br-shop } }
    chain filter-forward-in__docker0 {
        ct state established,related counter accept
        iifname "docker0" counter accept comment "ICC"
        counter drop comment "UNPUBLISHED PORT DROP"
    }
    chain filter-forward-out__docker0 {
        ct state established,related counter accept
        counter accept comment "OUTGOING"
    }
    chain filter-forward-in__br-shop {
        ct state established,related counter accept
        iifname "br-shop" counter accept comment "ICC"
        ip daddr 172.30.0.2 tcp dport 80 counter accept
        counter drop comment "UNPUBLISHED PORT DROP"
    }
    chain filter-forward-out__br-shop {
        ct state established,related counter accept
        counter accept comment "OUTGOING"
    }
    chain nat-postrouting-in__docker0 { }
    chain nat-postrouting-in__br-shop { }
    chain nat-postrouting-out__docker0 {
        oifname != "docker0" ip saddr 172.17.0.0/16 counter masquerade comment "MASQUERADE"
    }
    chain nat-postrouting-out__br-shop {
        oifname != "br-shop" ip saddr 172.30.0.0/16 counter masquerade comment "MASQUERADE"
    }
    chain nat-prerouting-and-output {
        iifname != "br-shop" tcp dport 8088 counter dnat to 172.30.0.2:80 comment "DNAT"
    }
    chain filter-FORWARD {
        type filter hook forward priority filter; policy accept;
        oifname vmap @filter-forward-in-jumps
        iifname vmap @filter-forward-out-jumps
    }
    chain nat-OUTPUT {
        type nat hook output priority -100; policy accept;
        ip daddr != 127.0.0.0/8 fib daddr type local counter jump nat-prerouting-and-output
    }
    chain nat-POSTROUTING {
        type nat hook postrouting priority srcnat; policy accept;
        iifname vmap @nat-postrouting-out-jumps
        oifname vmap @nat-postrouting-in-jumps
    }
    chain nat-PREROUTING {
        type nat hook prerouting priority dstnat; policy accept;
        fib daddr type local counter jump nat-prerouting-and-output
    }
    chain raw-PREROUTING {
        type filter hook prerouting priority raw; policy accept;
        ip daddr 172.30.0.2 iifname != "br-shop" counter drop comment "DROP DIRECT ACCESS"
    }
}
"""
NETAVARK = """
table inet netavark {
    chain INPUT {
        type filter hook input priority filter; policy accept;
        ip saddr 10.88.0.0/16 meta l4proto { tcp, udp } th dport 53 accept
    }
    chain FORWARD {
        type filter hook forward priority filter; policy accept;
        ct state invalid drop
        jump NETAVARK-ISOLATION-1
        ip daddr 10.88.0.0/16 ct state established,related accept
        ip saddr 10.88.0.0/16 accept
    }
    chain POSTROUTING {
        type nat hook postrouting priority srcnat; policy accept;
        meta mark & 0x00002000 == 0x00002000 masquerade
        ip saddr 10.88.0.0/16 jump nv_10_88_0_0_nm16
        ip6 saddr fd00:88::/64 jump nv_fd00-88_nm64
    }
    chain PREROUTING {
        type nat hook prerouting priority dstnat; policy accept;
        fib daddr type local jump NETAVARK-HOSTPORT-DNAT
    }
    chain OUTPUT {
        type nat hook output priority -100; policy accept;
        fib daddr type local jump NETAVARK-HOSTPORT-DNAT
    }
    chain NETAVARK-HOSTPORT-DNAT { tcp dport 8089 jump nv_10_88_0_0_nm16_dnat
    }
    chain NETAVARK-HOSTPORT-SETMARK { meta mark set meta mark | 0x00002000
    }
    chain NETAVARK-ISOLATION-1 { iifname "podman1" oifname != "podman1" jump NETAVARK-ISOLATION-2
    }
    chain NETAVARK-ISOLATION-2 { oifname "podman0" drop
    }
    chain nv_10_88_0_0_nm16 {
        ip daddr 10.88.0.0/16 accept
        ip daddr != 224.0.0.0/4 masquerade
    }
    chain nv_fd00-88_nm64 {
        ip6 daddr fd00:88::/64 accept
        ip6 daddr != ff00::/8 masquerade
    }
    chain nv_10_88_0_0_nm16_dnat {
        ip saddr 10.88.0.0/16 tcp dport 8089 jump NETAVARK-HOSTPORT-SETMARK
        ip saddr 127.0.0.1 tcp dport 8089 jump NETAVARK-HOSTPORT-SETMARK
        tcp dport 8089 dnat ip to 10.88.0.4:8080
    }
}
"""
FIREWALLD = """
table inet firewalld {
    chain filter_PREROUTING {
        type filter hook prerouting priority filter + 10; policy accept;
        meta nfproto ipv6 fib saddr . mark . iif oif missing drop
    }
    chain mangle_PREROUTING { type filter hook prerouting priority mangle + 10; policy accept;
        jump mangle_PREROUTING_ZONES
    }
    chain mangle_PREROUTING_ZONES { iifname "docker0" goto mangle_PRE_docker
        goto mangle_PRE_public
    }
    chain mangle_PRE_docker { }
    chain mangle_PRE_public { }
    chain nat_PREROUTING { type nat hook prerouting priority dstnat + 10; policy accept; jump nat_PREROUTING_ZONES
    }
    chain nat_PREROUTING_ZONES { goto nat_PRE_public
    }
    chain nat_PRE_public { meta nfproto ipv4 tcp dport 8443 redirect to :443
    }
    chain nat_POSTROUTING { type nat hook postrouting priority srcnat + 10; policy accept; jump nat_POSTROUTING_ZONES
    }
    chain nat_POSTROUTING_ZONES { oifname "eth1" goto nat_POST_external
        goto nat_POST_public
    }
    chain nat_POST_external { meta nfproto ipv4 oifname != "lo" masquerade
    }
    chain nat_POST_public { }
    chain filter_INPUT {
        type filter hook input priority filter + 10; policy accept;
        ct state { established, related } accept
        ct status dnat accept
        iifname "lo" accept
        ct state invalid drop
        jump filter_INPUT_ZONES
        reject with icmpx admin-prohibited
    }
    chain filter_FORWARD {
        type filter hook forward priority filter + 10; policy accept;
        ct state { established, related } accept
        ct status dnat accept
        iifname "lo" accept
        ct state invalid drop
        ip6 daddr { ::/96, ::ffff:0.0.0.0/96, 2002::/24, 2002:a00::/24 } reject with icmpv6 addr-unreachable
        jump filter_FORWARD_ZONES
        reject with icmpx admin-prohibited
    }
    chain filter_OUTPUT {
        type filter hook output priority filter + 10; policy accept;
        ct state { established, related } accept
        oifname "lo" accept
        ip6 daddr { ::/96, ::ffff:0.0.0.0/96 } reject with icmpv6 addr-unreachable
    }
    chain filter_INPUT_ZONES { ip saddr 192.0.2.0/24 goto filter_IN_trusted
        iifname "eth0" goto filter_IN_public
        goto filter_IN_public
    }
    chain filter_FORWARD_ZONES { iifname "eth0" goto filter_FWD_public
        goto filter_FWD_public
    }
    chain filter_IN_trusted { accept
    }
    chain filter_IN_public {
        tcp dport 22 accept
        ip6 daddr fe80::/64 udp dport 546 accept
        tcp dport 30000-32767 accept
        udp dport { 53, 4789 } accept
        meta l4proto { icmp, ipv6-icmp } accept
    }
    chain filter_FWD_public { oifname "eth0" accept
        meta l4proto { icmp, ipv6-icmp } accept
    }
}
"""
FLANNEL = """
table ip flannel-ipv4 {
    chain forward {
        type filter hook forward priority filter; policy accept;
        ip saddr 10.244.0.0/16 counter accept
        ip daddr 10.244.0.0/16 counter accept
    }
    chain postrtg {
        type nat hook postrouting priority srcnat; policy accept;
        meta mark & 0x00004000 == 0x00004000 counter return
        ip saddr 10.244.1.0/24 ip daddr 10.244.0.0/16 counter return
        ip saddr 10.244.0.0/16 ip daddr 10.244.1.0/24 counter return
        ip saddr != 10.244.1.0/24 ip daddr 10.244.1.0/24 counter return
        ip saddr 10.244.0.0/16 ip daddr != 224.0.0.0/4 counter masquerade fully-random
        ip saddr != 10.244.0.0/16 ip daddr 10.244.0.0/16 counter masquerade fully-random
    }
}
table ip6 flannel-ipv6 {
    chain forward {
        type filter hook forward priority filter; policy accept;
        ip6 saddr fd00:10:244::/48 counter accept
    }
    chain postrtg {
        type nat hook postrouting priority srcnat; policy accept;
        ip6 saddr fd00:10:244::/48 ip6 daddr != ff00::/8 counter masquerade fully-random
    }
}
"""
HOST = """
table inet filter {
    set office { type ipv4_addr; flags interval; auto-merge; elements = { 192.0.2.0/24, 198.51.100.7 } }
    set office6 { type ipv6_addr; flags interval; elements = { 2001:db8::/32 } }
    chain input {
        type filter hook input priority filter; policy drop;
        ct state vmap { established : accept, related : accept, invalid : drop }
        iif "lo" accept
        fib saddr . iif oif missing drop
        tcp flags & (fin|syn|rst|ack) != syn ct state new drop
        meta l4proto { icmp, ipv6-icmp } accept
        ip saddr @office tcp dport { 22, 6443 } accept
        ip6 saddr @office6 tcp dport { 22, 6443 } accept
        iifname "cilium_*" accept
        tcp dport 30000-32767 accept
        limit rate 5/minute burst 10 packets log prefix "dropped: " level info
        pkttype { broadcast, multicast } drop
        reject
    }
    chain forward {
        type filter hook forward priority filter; policy accept;
        tcp flags syn tcp option maxseg size set 1360
    }
    chain output { type filter hook output priority filter; policy accept; }
}
table bridge guard {
    chain forward { type filter hook forward priority filter; policy accept; ether type arp accept
    }
}
table netdev edge { }
table arp unused { }
"""
OTHER_PROGRAMS = {"docker": DOCKER, "netavark": NETAVARK, "firewalld": FIREWALLD, "flannel": FLANNEL, "host": HOST}
