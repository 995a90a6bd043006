//! Values that are words or times, checked.

use std::time::Duration;

use proto::tcp::{
    CongestionControl, EcnMode, FastOpenMode, IcmpWhileConnecting, MtuProbing, SynCookies,
};
use toml::Spanned;

use super::problem::{Problem, problem};
use crate::{
    limits,
    log::Verbosity,
    regime::{Dispatch, Regime},
    trace::Level,
    units,
};

pub(super) fn regime(name: &Spanned<String>) -> Result<Regime, Problem> {
    let wanted = name.get_ref();
    match wanted.parse::<Regime>() {
        Ok(regime) if regime.layout(None).is_some() => Ok(regime),
        Ok(later) => {
            let what = format!(
                "the regime `{later}` is not supported yet; this release has {}",
                Regime::names()
            );
            Err(problem(name, what))
        }
        Err(_) => Err(problem(
            name,
            format!(
                "unknown regime `{wanted}`; it is one of {}",
                Regime::names()
            ),
        )),
    }
}

pub(super) fn moderation(time: &Spanned<String>) -> Result<Duration, Problem> {
    duration(time, limits::MODERATION_MAX)
}

pub(super) fn background(time: &Spanned<String>) -> Result<Duration, Problem> {
    duration(time, limits::BACKGROUND_MAX)
}

pub(super) fn spin(time: &Spanned<String>) -> Result<Duration, Problem> {
    duration(time, limits::SPIN_MAX)
}

/// A time of at most `most`.
fn duration(text: &Spanned<String>, most: Duration) -> Result<Duration, Problem> {
    let time = units::duration(text.get_ref()).map_err(|what| problem(text, what))?;
    if time > most {
        let (given, most) = (text.get_ref(), most.as_millis());
        return Err(problem(
            text,
            format!("{given} is out of range: 0 to {most} ms"),
        ));
    }
    Ok(time)
}

pub(super) fn dispatch(name: &Spanned<String>) -> Result<Dispatch, Problem> {
    let why = |_| {
        let (wanted, names) = (name.get_ref(), Dispatch::ALL.map(Dispatch::name).join(", "));
        problem(
            name,
            format!("unknown dispatch `{wanted}`; it is one of {names}"),
        )
    };
    name.get_ref().parse().map_err(why)
}

pub(super) fn loopback(whose: &Spanned<String>) -> Result<bool, Problem> {
    let find = |name: &str| match name {
        "netchan" => Some(true),
        "kernel" => Some(false),
        _ => None,
    };
    word(
        whose,
        "owner of the loopback addresses",
        find,
        &["netchan", "kernel"],
    )
}

pub(super) fn level(name: &Spanned<String>) -> Result<Level, Problem> {
    name.get_ref()
        .parse()
        .map_err(|what: String| problem(name, what))
}

/// A ring's length.
pub(super) fn trace_events(number: &Spanned<i64>) -> Result<usize, Problem> {
    let (given, range) = (*number.get_ref(), &limits::TRACE_EVENTS);
    let events = usize::try_from(given).ok();
    let events = events.filter(|events| events.is_power_of_two() && range.contains(events));
    let (least, most) = (range.start(), range.end());
    events.ok_or_else(|| {
        problem(
            number,
            format!("{given} is no power of two from {least} to {most}"),
        )
    })
}

/// A word of a list: the value that it names.
fn word<T>(
    text: &Spanned<String>,
    what: &str,
    find: impl Fn(&str) -> Option<T>,
    names: &[&str],
) -> Result<T, Problem> {
    let wanted = text.get_ref();
    let why = || {
        let names = names.join(", ");
        problem(
            text,
            format!("unknown {what} `{wanted}`; it is one of {names}"),
        )
    };
    find(wanted).ok_or_else(why)
}

pub(super) fn congestion(name: &Spanned<String>) -> Result<CongestionControl, Problem> {
    let find = |name: &str| match name {
        "newreno" => Some(CongestionControl::NewReno),
        other => CongestionControl::called(other),
    };
    let names = CongestionControl::ALL.map(CongestionControl::name);
    word(name, "congestion control", find, &names)
}

pub(super) fn ecn(name: &Spanned<String>) -> Result<EcnMode, Problem> {
    let names = EcnMode::ALL.map(EcnMode::name);
    word(name, "ECN mode", EcnMode::called, &names)
}

pub(super) fn mtu_probing(name: &Spanned<String>) -> Result<MtuProbing, Problem> {
    let names = MtuProbing::ALL.map(MtuProbing::name);
    word(name, "way to probe paths", MtuProbing::called, &names)
}

pub(super) fn icmp_while_connecting(
    name: &Spanned<String>,
) -> Result<IcmpWhileConnecting, Problem> {
    let names = IcmpWhileConnecting::ALL.map(IcmpWhileConnecting::name);
    word(
        name,
        "way to take ICMP errors",
        IcmpWhileConnecting::called,
        &names,
    )
}

pub(super) fn fast_open(name: &Spanned<String>) -> Result<FastOpenMode, Problem> {
    let what = "side of Fast Open";
    word(name, what, FastOpenMode::called, &FastOpenMode::NAMES)
}

pub(super) fn syn_cookies(name: &Spanned<String>) -> Result<SynCookies, Problem> {
    let wanted = name.get_ref();
    let found = SynCookies::ALL.into_iter().find(|c| c.name() == wanted);
    let names = || SynCookies::ALL.map(SynCookies::name).join(", ");
    found.ok_or_else(|| {
        problem(
            name,
            format!("unknown `{wanted}`; it is one of {}", names()),
        )
    })
}

pub(super) fn verbosity(name: &Spanned<String>) -> Result<Verbosity, Problem> {
    let names = Verbosity::ALL.map(Verbosity::name);
    word(name, "level", Verbosity::called, &names)
}
