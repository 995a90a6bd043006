//! Settings as a configuration file says them.

use std::io;

use proto::{
    ip::address::Address,
    tcp::{self, UserTimeoutOption},
};

use super::Builder;
use crate::{
    config::{Config, TcpConfig},
    errno::invalid,
    link::specification,
    memory::Limits,
};

impl Builder {
    /// Everything that a configuration says.
    ///
    /// # Errors
    /// The system's, in words, for a link that cannot be opened.
    pub fn from_config(config: &Config) -> io::Result<Self> {
        Self::default().configured(config)
    }

    /// The same over links that may be open already.
    pub(crate) fn configured(self, config: &Config) -> io::Result<Self> {
        let mut builder = self.chosen(config);
        builder.trace = config.trace;
        if let Some(events) = config.trace_events {
            builder = builder.trace_events(events);
        }
        for link in &config.links {
            let handed = builder.handed.links.pop_front().unwrap_or_default();
            let opened = specification::adopt(&link.specification, &builder.clock, handed)?;
            builder = builder.link_with(opened);
            let plan = builder.last("address")?;
            for &(ip, prefix_len) in &link.addresses {
                plan.addresses.push(
                    Address::new(ip, prefix_len)
                        .map_err(|e| invalid(format!("address {ip}: {e}")))?,
                );
            }
            plan.gateways.clone_from(&link.gateways);
            plan.routes.clone_from(&link.routes);
        }
        for module in &config.modules {
            builder = builder.module(module.make()?);
        }
        builder = builder.with_tcp(&config.tcp);
        let bytes = |limit: Option<usize>| limit.map(|bytes| bytes as u64);
        builder.memory = Limits {
            tcp: bytes(config.tcp.memory_max),
            udp: bytes(config.udp.memory_max),
            tcp_socket: bytes(config.tcp.socket_memory_max),
            tcp_peer: bytes(config.tcp.peer_memory_max),
            udp_socket: bytes(config.udp.socket_memory_max),
            udp_peer: bytes(config.udp.peer_memory_max),
        };
        if !config.cores.is_empty() {
            return Err(invalid(
                "cores is not in this version: pin the process with taskset(1)",
            ));
        }
        Ok(builder)
    }

    fn with_tcp(self, config: &TcpConfig) -> Self {
        let mut builder = self;
        set_tcp(&mut builder.tcp, config);
        if let Some(bytes) = config.receive_buffer_max {
            builder = builder.receive_buffer_max(bytes);
        }
        if let Some(bytes) = config.send_buffer_max {
            builder = builder.send_buffer_max(bytes);
        }
        builder
    }

    fn chosen(mut self, config: &Config) -> Self {
        self = self.said_by("configuration");
        if let Some(regime) = config.regime {
            self = self.regime(regime);
        }
        if let Some(giant) = config.giant {
            self = self.giant(giant);
        }
        if let Some(dispatch) = config.dispatch {
            self = self.dispatch(dispatch);
        }
        if let Some(shards) = config.shards {
            self = self.shards(shards);
        }
        if let Some(forwarding) = config.forwarding {
            self = self.forwarding(forwarding);
        }
        if let Some(loopback) = config.loopback {
            self = self.loopback(loopback);
        }
        if let Some(mss_clamp) = config.mss_clamp {
            self = self.mss_clamp(mss_clamp);
        }
        if let Some(compile) = config.compile_filters {
            self = self.compile_filters(compile);
        }
        if let Some(limited) = config.icmp.rate_limit {
            self = self.icmp_rate_limit(limited);
        }
        if let Some(moderation) = config.moderation {
            self = self.moderation(moderation);
        }
        if let Some(interval) = config.background {
            self = self.background(interval);
        }
        if let Some(spin) = config.spin {
            self = self.spin(spin);
        }
        self.said_by("program")
    }
}

/// The settings of `[tcp]` that may change while a stack runs.
pub(super) const fn set_tcp(tcp: &mut tcp::Config, config: &TcpConfig) {
    if let Some(congestion) = config.congestion {
        tcp.congestion = congestion;
    }
    if let Some(limit) = config.slow_start_limit {
        tcp.slow_start_limit = limit;
    }
    if let Some(ecn) = config.ecn {
        tcp.ecn = ecn;
    }
    if let Some(pacing) = config.pacing {
        tcp.pacing = pacing;
    }
    if let Some(syn_cookies) = config.syn_cookies {
        tcp.syn_cookies = syn_cookies;
    }
    if let Some(fast_open) = config.fast_open {
        tcp.fast_open = fast_open;
    }
    if let Some(probing) = config.mtu_probing {
        tcp.mtu_probing = probing;
    }
    if let Some(mode) = config.icmp_while_connecting {
        tcp.icmp_while_connecting = mode;
    }
    if let Some(required) = config.timestamps_required {
        tcp.timestamps_required = required;
    }
    if let Some(tells) = config.user_timeout_option {
        tcp.user_timeout_option = if tells {
            UserTimeoutOption::Negotiable
        } else {
            UserTimeoutOption::Off
        };
    }
    if let Some(nagle) = config.nagle {
        tcp.nagle = nagle;
    }
}
