//! Two stacks with a wire between them.

use netchan::{Net, Regime, link::wire};

/// 10.0.0.1 and 10.0.0.2.
pub fn pair(regime: Regime) -> (Net, Net) {
    let (near, far) = wire::pair(&wire::Options::default());
    let one = |end: wire::Wire, address: &str| {
        let net = Net::builder().regime(regime).link_with(Box::new(end));
        net.address(address).unwrap().start().unwrap()
    };
    (one(near, "10.0.0.1/24"), one(far, "10.0.0.2/24"))
}
