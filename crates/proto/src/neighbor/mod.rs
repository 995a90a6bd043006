//! Neighbours: ARP (RFC 826) and NDP (RFC 4861) resolution under one table.
