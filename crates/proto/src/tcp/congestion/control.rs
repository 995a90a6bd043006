//! What is made of the table of congestion controls.

/// Makes of the table of congestion controls the names that programs and configurations use, and the type that holds any of them.
macro_rules! controls {
    ($($(#[$doc:meta])* $which:ident, $name:literal, $state:ty;)*) => {
        /// How the congestion window moves. Names are those of Linux's `TCP_CONGESTION`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum CongestionControl {
            $($(#[$doc])* $which,)*
        }

        impl CongestionControl {
            /// All of them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$which),*];

            /// Its name in `TCP_CONGESTION` and in configurations.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$which => $name,)*
                }
            }

            /// The one with this name.
            pub fn called(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|control| control.name() == name)
            }
        }

        /// Any of the congestion controls, with its state.
        #[derive(Clone, Debug)]
        #[cfg_attr(test, derive(PartialEq))]
        enum Control {
            $($which($state),)*
        }

        impl Control {
            /// The one asked for, before [`Algorithm::on_open`].
            fn new(which: CongestionControl) -> Self {
                match which {
                    $(CongestionControl::$which => Self::$which(<$state>::default()),)*
                }
            }

            /// Which one it is.
            const fn which(&self) -> CongestionControl {
                match self {
                    $(Self::$which(_) => CongestionControl::$which,)*
                }
            }
        }

        /// A [`Control`] as plain data.
        #[derive(Clone, Debug, PartialEq)]
        enum ControlImage {
            $($which(<$state as Imaged>::Image),)*
        }

        impl Imaged for Control {
            type Image = ControlImage;
            fn image(&self, now: Instant) -> ControlImage {
                match self {
                    $(Self::$which(control) => ControlImage::$which(control.image(now)),)*
                }
            }
            fn from_image(image: ControlImage, now: Instant) -> Self {
                match image {
                    $(ControlImage::$which(image) => Self::$which(Imaged::from_image(image, now)),)*
                }
            }
        }

        #[cfg(test)]
        impl crate::tcp::image::scramble::Scramble for ControlImage {
            fn scramble(&mut self, dice: &mut crate::tcp::image::scramble::Scrambler) {
                match self {
                    $(Self::$which(image) => crate::tcp::image::scramble::Scramble::scramble(image, dice),)*
                }
            }
        }

        impl Algorithm for Control {
            fn on_open(&mut self, window: &mut Window, srtt_us: u32, now: Instant) {
                match self {
                    $(Self::$which(control) => control.on_open(window, srtt_us, now),)*
                }
            }
            // Each gets a copy: an acknowledgment without an address stays in registers where most of it is not asked for.
            #[inline(always)]
            fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
                match self {
                    $(Self::$which(control) => control.on_ack(window, &{ *ack }),)*
                }
            }
            fn reduce(&mut self, window: &Window, cause: Cause, in_flight: u32, now: Instant) -> u32 {
                match self {
                    $(Self::$which(control) => control.reduce(window, cause, in_flight, now),)*
                }
            }
            fn on_timeout(&mut self, window: &mut Window, first: bool, in_flight: u32, now: Instant) {
                match self {
                    $(Self::$which(control) => control.on_timeout(window, first, in_flight, now),)*
                }
            }
            fn on_recovered(&mut self, window: &mut Window, now: Instant) {
                match self {
                    $(Self::$which(control) => control.on_recovered(window, now),)*
                }
            }
            fn on_undo(&mut self, window: &mut Window) {
                match self {
                    $(Self::$which(control) => control.on_undo(window),)*
                }
            }
            fn on_restart(&mut self, window: &mut Window, idle_us: u64, rto_us: u64, now: Instant) {
                match self {
                    $(Self::$which(control) => control.on_restart(window, idle_us, rto_us, now),)*
                }
            }
            fn on_lost(&mut self, window: &mut Window, segment: &LostSegment) {
                match self {
                    $(Self::$which(control) => control.on_lost(window, segment),)*
                }
            }
            fn owns_window(&self) -> bool {
                match self {
                    $(Self::$which(control) => control.owns_window(),)*
                }
            }
            fn is_sound(&self) -> bool {
                match self {
                    $(Self::$which(control) => control.is_sound(),)*
                }
            }
        }
    };
}

pub(super) use controls;
