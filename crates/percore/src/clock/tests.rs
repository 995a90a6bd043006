//! Tests of the clock: the line's arithmetic, and the real thing against the kernel's.

use super::{
    BACKWARDS_CYCLES_MAX, cycles, cycles_to_ns, hz, is_tsc,
    line::{self, Line, Sample},
    monotonic_ns, now_ns, tsc,
};

fn sample(cycles: u64, ns: u64) -> Sample {
    let width = 40;
    Sample { cycles, ns, width }
}

#[test]
fn a_sample_is_in_the_middle_and_the_sharpest_is_taken() {
    let wide = Sample::between(100, 7, 141);
    assert_eq!((wide.cycles, wide.ns, wide.width), (120, 7, 41));
    let back = Sample::between(100, 8, 90);
    assert_eq!(
        (back.cycles, back.width),
        (100, 0),
        "another core's counter"
    );
    let [sharp, equal] = [9, 10].map(|ns| Sample::between(100, ns, 140));
    assert_eq!((wide.sharper(sharp).ns, sharp.sharper(wide).ns), (9, 9));
    assert_eq!((sharp.sharper(equal).ns, equal.sharper(sharp).ns), (9, 10));
    let of_width = |width| Sample::between(0, 0, width);
    assert!(of_width(4_999).is_sharp() && !of_width(5_000).is_sharp());
}

#[test]
fn rates_are_rounded_to_the_nearest() {
    let thirds = |thirds: u64| line::hz((thirds << 52) / 3);
    assert_eq!(line::hz(3 << 52), 333_333_333);
    assert_eq!((thirds(1), thirds(2)), (3_000_000_000, 1_500_000_000));
    assert_eq!(line::hz(3 << 51), 666_666_667);
}

#[test]
fn a_counter_that_is_far_behind_was_reset() {
    let line = Line::new();
    let start = 3 * BACKWARDS_CYCLES_MAX;
    line.draw(sample(0, 0), sample(start, 1_000_000), None, None);
    let was_reset = |behind| super::was_reset(&line, start - behind);
    assert!(!was_reset(0) && !was_reset(BACKWARDS_CYCLES_MAX));
    assert!(was_reset(BACKWARDS_CYCLES_MAX + 1));
    assert!(!super::was_reset(&line, 2 * start), "far ahead");
}

#[test]
fn a_line_goes_through_its_samples_and_on() {
    let line = Line::new();
    // 2.5 GHz, from an odd origin.
    let (a, b) = (sample(7_000, 1_000_000), sample(50_007_000, 21_000_000));
    line.draw(a, b, None, Some(1_000_000_000));
    assert_eq!(line::hz(line.rate()), 2_500_000_000);
    let at_b = line.at(50_007_000).unwrap();
    assert!(
        (21_000_008..=21_000_009).contains(&at_b),
        "half of the sample's 40 cycles, and 1"
    );
    assert!(line.at(50_007_000 + 2_500).unwrap().abs_diff(at_b + 1000) <= 1);
    assert_eq!(line.at(50_006_999), None, "before its start");
    assert_eq!(line.at(0), None);
    let due = 50_007_000 + 980_000_000 * 5 / 2;
    assert!(line.at(due - 10).is_some() && line.at(due + 10).is_none());
    assert_eq!(line.extrapolate(0), at_b);
}

#[test]
fn the_last_line_has_no_end() {
    let line = Line::new();
    line.draw(
        sample(0, 0),
        sample(3_000_000_000, 1_000_000_000),
        None,
        None,
    );
    let year = 3_000_000_000 * 86_400 * 365;
    let off = line
        .at(50 * year)
        .unwrap()
        .abs_diff(50 * 86_400 * 365 * 1_000_000_000);
    assert!(off < 10_000_000, "{off} ns in 50 years");
    assert_eq!(line.at(2_999_999_999), None);
}

#[test]
fn a_new_line_is_never_below_the_old_one_while_it_may_be_in_use() {
    // The second measurement says: slower, the same, faster, and the clock ahead or behind.
    for ns in [
        999_990_000,
        999_999_990,
        999_999_000,
        1_000_000_000,
        1_000_001_000,
        1_000_010_000,
    ] {
        let (old, new) = (Line::new(), Line::new());
        let first = sample(0, 0);
        old.draw(
            first,
            sample(60_000_000, 20_000_000),
            None,
            Some(1_000_000_000),
        );
        let now = sample(3_000_000_000, ns);
        new.draw(first, now, Some(&old), None);
        for late in [0, 1, 2, 3, 1_000_000, 30_000_000] {
            let at = now.cycles + late;
            let value = new.at(at).unwrap();
            assert!(value >= old.extrapolate(at), "at {ns}, {late} cycles later");
            assert!(value >= ns + late / 3 - 200, "behind the kernel's clock");
        }
    }
}

#[test]
fn extremes_do_not_overflow() {
    assert_eq!(line::rate_between(sample(5, 5), sample(5, 5)), 1);
    assert_eq!(line::rate_between(sample(9, 9), sample(5, 5)), 1);
    assert!(line::hz(1) > 0 && line::hz(0) > 0);
    assert_eq!(line::scale(0, u64::MAX), 0);
}

#[test]
fn it_never_goes_backwards_in_any_thread_and_stays_at_the_kernels_time() {
    let start = monotonic_ns();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last = now_ns();
                // Past the takeover by the counter (20 ms), and past the second line (1 s).
                while last < start + 1_200_000_000 {
                    for _ in 0..1000 {
                        let now = now_ns();
                        assert!(now >= last, "{now} after {last}");
                        last = now;
                    }
                    let (before, now, after) = (monotonic_ns(), now_ns(), monotonic_ns());
                    let (ahead, behind) = (now.saturating_sub(after), before.saturating_sub(now));
                    assert!(
                        ahead < 100_000 && behind < 100_000,
                        "{ahead} ahead, {behind} behind"
                    );
                }
            });
        }
    });
    assert_eq!(is_tsc(), tsc::is_invariant());
}

#[test]
fn cycles_convert() {
    let (ns, from) = (monotonic_ns(), cycles());
    while monotonic_ns() < ns + 30_000_000 {
        std::hint::spin_loop();
    }
    let spent = cycles() - from;
    let measured = monotonic_ns() - ns;
    let converted = cycles_to_ns(spent);
    assert!(
        converted.abs_diff(measured) < measured / 100 + 100_000,
        "{converted} for {measured}"
    );
    assert!((10_000_000..10_000_000_000).contains(&hz()));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn whether_the_counter_can_be_a_clock() {
    let says = |highest, power| {
        tsc::says_invariant(|leaf| match leaf {
            0x8000_0000 => (highest, 0),
            0x8000_0007 => (0, power),
            other => unreachable!("leaf {other:x}"),
        })
    };
    assert!(says(0x8000_0007, 0x100) && says(0x8000_001f, 0x101));
    assert!(!says(0x8000_0006, 0x100), "there is no such leaf");
    assert!(!says(0x8000_0008, 0xeff) && !says(0x8000_0008, 0));
    assert!(tsc::names_tsc(b"kvm-clock tsc acpi_pm\n") && tsc::names_tsc(b"tsc \n"));
    assert!(!tsc::names_tsc(b"tsc-early hpet\n") && !tsc::names_tsc(b""));
    // Where the kernel tells of the processor and of its clocks, that is what we found.
    let told = |path| std::fs::read_to_string(path).ok();
    let list = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    if let (Some(cpu), Some(list)) = (told("/proc/cpuinfo"), told(list)) {
        let invariant = cpu.split_whitespace().any(|flag| flag == "nonstop_tsc");
        let trusted = list.split_whitespace().any(|name| name == "tsc");
        assert_eq!(tsc::is_invariant(), invariant && trusted);
    }
}

/// Between two readings as between two that wait for each other, time goes on.
#[test]
fn readings_in_order() {
    let (before, now, after) = (cycles(), super::cycles_in_order(), cycles());
    assert!(before > 1 && now >= before && after >= now && after > before);
}

#[test]
fn the_counter_takes_over_and_not_before() {
    crate::own::tests::alone("clock::tests::takes_over");
}

#[test]
#[ignore = "needs a clock that was not asked yet: another test runs it in a process of its own"]
fn takes_over() {
    assert!(!is_tsc(), "not asked yet");
    let start = monotonic_ns();
    while monotonic_ns() < start + 40_000_000 {
        now_ns();
    }
    assert_eq!(is_tsc(), tsc::is_invariant());
    // It is read as it is until the rate is measured again, a second after the first sample.
    if is_tsc() && monotonic_ns() < start + 900_000_000 {
        assert!(super::LINES[0].at(cycles()).is_some());
    }
}

#[test]
fn a_clock_that_went_back_to_the_kernel_measures_no_more() {
    crate::own::tests::alone("clock::tests::kernel_only");
}

#[test]
#[ignore = "changes its process: another test runs it in one of its own"]
fn kernel_only() {
    use std::sync::atomic::Ordering;
    super::KERNEL_ONLY.store(true, Ordering::Relaxed);
    super::draw(0); // of one that began when it was not yet so
    assert!(super::FIRST.lock().unwrap().is_none());
    let (before, now, after) = (monotonic_ns(), now_ns(), monotonic_ns());
    assert!((before..=after).contains(&now) && !is_tsc());
}
