//! What connections begin with: the stack's TCP settings, and what a socket wants otherwise.

use std::time::Duration;

use proto::tcp::{
    Config, CongestionControl, Keepalive, Template, UserTimeoutOption, retries_in, retry_budget,
};

use super::Shard;

/// Most that TCP_LINGER2 grants: as Linux.
const LINGER2_MAX: Duration = Duration::from_secs(120);
/// Linux's SOCK_MIN_RCVBUF, before it is doubled.
pub const RECEIVE_BUFFER_MIN: u32 = 1152;
/// RFC 7323 §2.3: no window exceeds 1 GiB.
const RECEIVE_BUFFER_MAX: u32 = 1 << 30;

/// The stack's settings as a shard has them.
#[derive(Debug)]
pub(super) struct Defaults {
    pub config: Config,
    /// The same made ready, for sockets without overrides of their own.
    pub template: Template,
}

impl Defaults {
    pub fn new(config: &Config) -> Self {
        Self {
            config: *config,
            template: Template::new(config),
        }
    }
}

/// What a socket wants otherwise than the stack's settings say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOverrides {
    /// SO_KEEPALIVE, with its times.
    pub keepalive: Option<Keepalive>,
    /// SO_RCVBUF, bytes.
    pub receive_buffer: Option<usize>,
    /// TCP_WINDOW_CLAMP, bytes; 0: none.
    pub window_clamp: u32,
    /// TCP_USER_TIMEOUT; zero: as the stack's setting.
    pub user_timeout: Duration,
    /// TCP_CONGESTION.
    pub congestion: Option<CongestionControl>,
    /// TCP_SYNCNT; 0: as the stack's setting.
    pub syn_count: u8,
    /// TCP_LINGER2; zero: as the stack's setting; `None`: it does not wait.
    pub linger2: Option<Duration>,
    /// TCP_DEFER_ACCEPT; zero: off.
    pub defer_accept: Duration,
}

impl Default for TcpOverrides {
    fn default() -> Self {
        Self {
            keepalive: None,
            receive_buffer: None,
            window_clamp: 0,
            user_timeout: Duration::ZERO,
            congestion: None,
            syn_count: 0,
            linger2: Some(Duration::ZERO),
            defer_accept: Duration::ZERO,
        }
    }
}

impl TcpOverrides {
    /// What a connection begins with where the stack's settings are `config`.
    #[cold]
    pub fn template(&self, config: &Config) -> Template {
        let mut config = *config;
        config.keepalive = self.keepalive.or(config.keepalive);
        config.receive_buffer = self.receive_room(config.receive_buffer);
        // A size that was asked for stays; a clamp is where growth ends.
        config.receive_buffer_max = match (self.receive_buffer, self.window_clamp) {
            (Some(_), _) => 0,
            (None, 0) => config.receive_buffer_max,
            (None, clamp) => config.receive_buffer_max.min(clamp),
        };
        if !self.user_timeout.is_zero() {
            config.retry_timeout = self.user_timeout;
            if config.user_timeout_option == UserTimeoutOption::Negotiable {
                // The application's own counts (CHANGEABLE of RFC 5482 §3.1).
                config.user_timeout_option = UserTimeoutOption::Fixed;
            }
        }
        config.congestion = self.congestion.unwrap_or(config.congestion);
        self.set_patience(&mut config);
        Template::new(&config)
    }

    fn set_patience(&self, config: &mut Config) {
        config.syn_timeout = self.syn_timeout(config);
        config.fin_wait_2 = self.fin_wait_2(config);
        // A listener that waits for data has to wait that long.
        let retries = retries_in(config, self.defer_accept);
        let least = retry_budget(config, retries);
        if retries > 0 && config.syn_received_timeout < least {
            config.syn_received_timeout = least;
        }
    }

    /// How long a SYN may go unanswered.
    pub fn syn_timeout(&self, config: &Config) -> Duration {
        match self.syn_count {
            0 => config.syn_timeout,
            retries => retry_budget(config, retries),
        }
    }

    /// How long FIN-WAIT-2 lasts.
    pub fn fin_wait_2(&self, config: &Config) -> Duration {
        match self.linger2 {
            None => Duration::ZERO,
            Some(Duration::ZERO) => config.fin_wait_2,
            Some(limit) => limit.min(LINGER2_MAX),
        }
    }

    /// SO_RCVBUF, or what there is without it; TCP_WINDOW_CLAMP, below which no window needs room.
    pub fn receive_room(&self, default: u32) -> u32 {
        let asked = self.receive_buffer;
        let bytes = asked.map_or(default, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        let most = match self.window_clamp {
            0 => RECEIVE_BUFFER_MAX,
            clamp => clamp,
        };
        bytes
            .clamp(RECEIVE_BUFFER_MIN, RECEIVE_BUFFER_MAX)
            .min(most)
    }
}

impl Shard {
    /// Connections that are opened from now on, actively or by a listener, begin with what TCP's settings are now.
    pub(super) fn tcp_changed(&mut self) {
        let Self {
            host,
            defaults,
            listeners,
            ..
        } = self;
        if defaults.config.fast_open.black_hole != host.tcp.fast_open.black_hole {
            self.fast_opens.forget_black_hole();
        }
        *defaults = Defaults::new(&host.tcp);
        for listener in listeners.iter_mut() {
            listener.begin_with(&host.tcp);
        }
    }

    /// Forgets what earlier connections told of their peers and paths.
    pub fn forget_peers(&mut self) {
        self.fast_opens.forget_peers();
        self.paths.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn config() -> Config {
        Config {
            rto_initial: seconds(1),
            rto_max: seconds(60),
            syn_timeout: seconds(100),
            syn_received_timeout: seconds(30),
            fin_wait_2: seconds(50),
            receive_buffer: 1 << 16,
            receive_buffer_max: 1 << 20,
            ..Config::default()
        }
    }

    fn patient(overrides: TcpOverrides) -> Config {
        let mut config = config();
        overrides.set_patience(&mut config);
        config
    }

    /// tcp(7): TCP_SYNCNT counts SYNs that are sent again, TCP_LINGER2 is two minutes at most, or none.
    #[test]
    fn a_socket_without_wishes_waits_as_the_stack_does() {
        let as_it_is = patient(TcpOverrides::default());
        assert_eq!(as_it_is.syn_timeout, seconds(100));
        assert_eq!(as_it_is.fin_wait_2, seconds(50));
        assert_eq!(as_it_is.syn_received_timeout, seconds(30));
        let syns = |syn_count| {
            let overrides = TcpOverrides {
                syn_count,
                ..TcpOverrides::default()
            };
            patient(overrides).syn_timeout
        };
        assert_eq!([syns(1), syns(3)], [seconds(1 + 2), seconds(1 + 2 + 4 + 8)]);
        let linger = |linger2| {
            let overrides = TcpOverrides {
                linger2,
                ..TcpOverrides::default()
            };
            patient(overrides).fin_wait_2
        };
        let lingers = [None, Some(seconds(7)), Some(seconds(500))].map(linger);
        assert_eq!(lingers, [Duration::ZERO, seconds(7), seconds(120)]);
    }

    /// TCP_DEFER_ACCEPT: a listener that waits for data waits at least so long for the end of a handshake, and never less than without it.
    #[test]
    fn a_listener_that_waits_for_data_waits_long_enough() {
        let deferred = |defer_accept| {
            let overrides = TcpOverrides {
                defer_accept,
                ..TcpOverrides::default()
            };
            patient(overrides).syn_received_timeout
        };
        assert_eq!(deferred(Duration::ZERO), seconds(30));
        // Four retransmissions begin within 15 s, and the last one has its time.
        assert_eq!(deferred(seconds(15)), seconds(31));
        assert_eq!(deferred(seconds(20)), seconds(63));
        assert_eq!(deferred(seconds(3)), seconds(30), "no less");
        // A listener that does not wait for data is as impatient as the stack's setting says.
        let mut hasty = Config {
            syn_received_timeout: Duration::from_millis(500),
            ..config()
        };
        TcpOverrides::default().set_patience(&mut hasty);
        assert_eq!(hasty.syn_received_timeout, Duration::from_millis(500));
    }

    /// SO_RCVBUF ends growth, TCP_WINDOW_CLAMP bounds it.
    #[test]
    fn a_size_that_was_asked_for_stays() {
        let room = |receive_buffer, window_clamp| {
            let overrides = TcpOverrides {
                receive_buffer,
                window_clamp,
                ..TcpOverrides::default()
            };
            overrides.receive_room(1 << 16)
        };
        assert_eq!(room(None, 0), 1 << 16);
        assert_eq!(room(Some(5000), 0), 5000);
        assert_eq!(room(Some(1), 0), RECEIVE_BUFFER_MIN);
        assert_eq!(room(Some(usize::MAX), 0), RECEIVE_BUFFER_MAX);
        assert_eq!([room(None, 900), room(Some(5000), 3000)], [900, 3000]);
        assert_eq!(room(Some(5000), 9000), 5000);
    }
}
