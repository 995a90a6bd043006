//! ICMP and ICMPv6: echo, errors out (rate limited) and errors in (matched to what they quote).
