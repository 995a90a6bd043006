//! What one connection learned of the path to a host, for those that follow (RFC 1191 §6.2, RFC 8201 §5.2).

use std::net::IpAddr;

use proto::{tcp::Connection, time::Instant};

use super::Shard;

/// IP and TCP headers without options.
const fn headers(remote: IpAddr) -> u16 {
    if remote.is_ipv4() { 40 } else { 60 }
}

impl Shard {
    /// A connection believed an ICMP error: segments to `remote` carry at most `size` bytes of text and options.
    #[cold]
    pub(super) fn remember_path(&mut self, remote: IpAddr, size: Option<u16>, now: Instant) {
        if let Some(size) = size {
            let mtu = u32::from(size) + u32::from(headers(remote));
            let whole = u16::MAX;
            self.paths.report(remote, mtu, whole, whole, now);
        }
    }

    /// Tells a new connection what is known of its path.
    #[inline]
    pub(super) fn recall_path(&self, remote: IpAddr, connection: &mut Connection, now: Instant) {
        let mtu = self.paths.lookup(remote, u16::MAX, now);
        if mtu < u16::MAX {
            connection.set_path_limit(mtu.saturating_sub(headers(remote)), now);
        }
    }
}
