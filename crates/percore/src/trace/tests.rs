//! Tests of the trace.

use super::{
    ARGS_MAX, Cost, Event, Line, Missed, Offset, Pass, Reader, Record, State, Table, Trigger,
    Writer, attach, bytes, event,
};
use crate::{ring::BadMemory, set_on_drop::SetOnDrop};
use std::{
    ptr::NonNull,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

const SENT: Event<3> = Event::new(
    0,
    "sent",
    "sent {items} items to {to hex}, the oldest had waited {wait ns}",
);
const IDLE: Event<0> = Event::new(1, "idle", "nothing to do");
static EVENTS: Table = Table::new(&[SENT.line(), IDLE.line()]);

fn all(reader: &mut Reader) -> (Vec<Record>, Missed) {
    let mut records = Vec::new();
    let missed = reader.read(|record| records.push(record));
    (records, missed)
}

#[test]
fn events_come_out_in_english_and_in_order() {
    let writer = Writer::new(8);
    let mut reader = writer.reader();
    writer.event(SENT, [3, 255, 1200]);
    writer.event(IDLE, []);
    let (records, missed) = all(&mut reader);
    assert_eq!(missed, Missed::default());
    let lines: Vec<_> = records
        .iter()
        .map(|r| EVENTS.describe(r).to_string())
        .collect();
    assert_eq!(
        lines,
        [
            "sent: sent items=3 items to to=0xff, the oldest had waited wait=1200 ns",
            "idle: nothing to do"
        ]
    );
    assert!(records[0].stamp <= records[1].stamp);
    assert_eq!((records[0].number, records[1].number), (0, 1));
    writer.event(IDLE, []);
    assert_eq!(all(&mut reader).0.len(), 1);
    assert_eq!(all(&mut reader).0.len(), 0);
}

#[test]
fn the_newest_stay() {
    let writer = Writer::new(3); // rounded up to 4
    let mut reader = writer.reader();
    (0..10).for_each(|i| writer.event(SENT, [i, 0, 0]));
    let (records, missed) = all(&mut reader);
    let first_args: Vec<_> = records.iter().map(|r| r.args[0]).collect();
    assert_eq!(first_args, [6, 7, 8, 9]);
    assert_eq!((missed.overwritten, missed.torn), (6, 0));
    assert_eq!((reader.written(), writer.reader().written()), (10, 10));
}

#[test]
fn switched_off_nothing_is_written() {
    let writer = Writer::new(4);
    writer.switch(false);
    writer.event(IDLE, []);
    assert_eq!(writer.reader().written(), 0);
    writer.switch(true);
    writer.event(IDLE, []);
    assert_eq!(writer.reader().written(), 1);
}

#[test]
fn a_thread_has_its_own_trace_or_none() {
    event(IDLE, []); // nowhere
    let first = attach(Writer::new(4));
    let mut reader = first.writer().reader();
    event(IDLE, []);
    thread::spawn(|| event(IDLE, [])).join().unwrap(); // nowhere
    assert_eq!(all(&mut reader).0.len(), 1);
    let second = attach(Writer::new(4));
    drop(first); // not the one in use
    event(SENT, [1, 2, 3]);
    assert_eq!(all(&mut second.writer().reader()).0[0].args[..3], [1, 2, 3]);
    drop(second);
    event(IDLE, []); // nowhere again
    assert_eq!(all(&mut reader).0.len(), 0);
}

#[test]
fn a_slot_says_whose_record_it_holds() {
    let tag = super::place::tag;
    assert_eq!(
        (tag(0, 0), tag(0, 7), tag(1, 0)),
        (0x1_0000, 0x1_0007, 0x2_0000)
    );
    assert_ne!(tag(3, u16::MAX), tag(4, u16::MAX));
}

#[test]
fn an_event_of_another_table() {
    let record = Record {
        number: 0,
        stamp: 0,
        event: 77,
        args: [1, 2, 3, 40],
    };
    let text = EVENTS.describe(&record).to_string();
    assert_eq!(text, "event 77 [1, 2, 3, 28]");
    assert_eq!((EVENTS.get(77), EVENTS.lines().len()), (None, 2));
}

#[test]
fn texts_that_do_not_fit_are_refused() {
    let new = |text| std::panic::catch_unwind(move || Event::<1>::new(0, "x", text));
    for text in ["", "{a} {b}", "{a", "a}", "{{a}", "{a}}"] {
        assert!(new(text).is_err(), "{text}");
    }
    assert!(new("{a}").is_ok());
    for text in ["{a{b}", "{{a}", "{a}{b"] {
        let two = std::panic::catch_unwind(|| Event::<2>::new(0, "x", text));
        assert!(two.is_err(), "{text}");
    }
    static LINES: [Line; 1] = [IDLE.line()];
    assert!(std::panic::catch_unwind(|| Table::new(&LINES)).is_err());
}

/// Cache lines of zeros, as a mapping would be.
#[repr(align(64))]
#[derive(Clone)]
struct CacheLine([u8; 64]);

fn lines(n: usize) -> Vec<CacheLine> {
    vec![CacheLine([0; 64]); n]
}

fn memory(lines: &mut [CacheLine], from: usize, to: usize) -> NonNull<[u8]> {
    // The pointer is to the whole, not to a part.
    let start = NonNull::from(lines).cast::<u8>();
    // SAFETY: the tests name offsets inside.
    let start = unsafe { start.add(from) };
    NonNull::slice_from_raw_parts(start, to - from)
}

fn writer_over(memory: NonNull<[u8]>) -> Result<Writer, BadMemory> {
    // SAFETY: zeros that outlive the writer, used by nothing but traces.
    unsafe { Writer::from_raw(memory) }
}

fn reader_over(memory: NonNull<[u8]>) -> Result<Reader, BadMemory> {
    // SAFETY: as above.
    unsafe { Reader::from_raw(memory) }
}

#[test]
fn over_given_memory_a_reader_needs_only_the_memory() {
    assert_eq!(bytes(5), 128 + 8 * 64);
    let mut lines = lines(2 + 7); // place for 4 records and not for 8
    let all_of_it = memory(&mut lines, 0, 9 * 64);
    let writer = writer_over(all_of_it).unwrap();
    let mut reader = reader_over(all_of_it).unwrap();
    (0..5).for_each(|i| writer.event(SENT, [i, i, i]));
    let (records, missed) = all(&mut reader);
    assert_eq!((records.len(), missed.overwritten), (4, 1));
    drop(writer);
    // What a thread did last can be read when it is gone, and a successor goes on.
    assert_eq!(all(&mut reader_over(all_of_it).unwrap()).0.len(), 4);
    writer_over(all_of_it).unwrap().event(IDLE, []);
    assert_eq!(all(&mut reader).0[0].number, 5);
}

#[test]
fn memory_that_does_not_do() {
    let mut lines = lines(4);
    let small = writer_over(memory(&mut lines, 0, 191));
    let (need, have) = (192, 191);
    assert_eq!(small.unwrap_err(), BadMemory::TooSmall { need, have });
    assert!(writer_over(memory(&mut lines, 0, 192)).is_ok());
    let odd = reader_over(memory(&mut lines, 8, 256));
    assert_eq!(odd.unwrap_err(), BadMemory::Misaligned(64));
}

/// Whatever an untrusted peer writes, a reader and a writer touch nothing but the memory, and say nothing but nonsense.
#[test]
fn memory_full_of_nonsense() {
    let mut lines = lines(2 + 4);
    for filling in [0xff, 0x80, 1] {
        lines.iter_mut().for_each(|line| line.0.fill(filling));
        let all_of_it = memory(&mut lines, 0, 6 * 64);
        let mut reader = reader_over(all_of_it).unwrap();
        let (records, missed) = all(&mut reader);
        let seen = missed.torn + u64::try_from(records.len()).unwrap();
        assert_eq!(missed.overwritten + seen, reader.written());
        let writer = writer_over(all_of_it).unwrap();
        writer.event(SENT, [1, 2, 3]);
        all(&mut reader);
    }
}

#[test]
fn whole_records_under_a_writer_that_goes_round() {
    const SAME: Event<{ ARGS_MAX }> = Event::new(5, "same", "{a} {b} {c} {d}");
    let writer = Writer::new(16);
    let mut reader = writer.reader();
    let over = AtomicBool::new(false);
    let mut got = 0;
    thread::scope(|scope| {
        let over = &over;
        let writing = scope.spawn(move || {
            let mut i = 0;
            while !over.load(Ordering::Relaxed) {
                writer.event(SAME, [i; ARGS_MAX]);
                i += 1;
            }
            i
        });
        let ends = SetOnDrop(over);
        let mut last = 0;
        for _ in 0..20_000 {
            let missed = reader.read(|record| {
                assert_eq!((record.args, record.event), ([record.number; 4], 5));
                assert!(record.stamp >= last);
                last = record.stamp;
                got += 1;
            });
            got += missed.overwritten + missed.torn;
        }
        drop(ends);
        let written = writing.join().unwrap();
        let missed = reader.read(|_| got += 1);
        got += missed.overwritten + missed.torn;
        assert_eq!(got, written);
    });
}

#[test]
fn it_says_what_it_costs() {
    let start = crate::clock::now_ns();
    let cost = Cost::measure();
    let took = crate::clock::now_ns() - start;
    assert!(cost.event_ns > 0.0 && cost.event_ns < 10_000.0, "{cost}");
    // The best of 50 runs of 1,000 events is not more than all of them took; the counter's rate is known to 1 ppm.
    let all = [
        cost.event_ns,
        cost.event_args_ns,
        cost.stamp_ns,
        cost.off_ns,
    ];
    let least = all.iter().sum::<f64>() * 50_000.0;
    assert!(least < took as f64 * 1.001, "{cost}: {took} ns in all");
    assert!(
        all.iter().any(|ns| (ns - cost.event_ns).abs() > 1e-9),
        "{cost}"
    );
    assert!(cost.to_string().contains("a trace event takes"));
}

#[test]
fn it_says_how_far_cores_are_apart() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let mut cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let here = cores.next().unwrap();
    if let Some(there) = cores.next() {
        let offset = Offset::measure(here, there).unwrap();
        let back = Offset::measure(there, here).unwrap();
        let (error, sum) = (
            offset.error_max_cycles + back.error_max_cycles,
            offset.cycles + back.cycles,
        );
        assert!(sum.unsigned_abs() <= error, "{offset}; {back}");
    }
    assert!(Offset::measure(here, 1 << 20).is_err());
    assert!(Offset::measure(here, 1023).is_err() || allowed.is_set(1023));
    assert_eq!(rustix::thread::sched_getaffinity(None).unwrap(), allowed);
}

#[test]
fn a_trigger_fires_once_and_counts_what_follows() {
    let trigger = Trigger::new();
    assert_eq!(trigger.state(), State::Idle);
    assert!(!trigger.fire(1, 5), "it is not armed");
    assert_eq!(trigger.pass(), Pass::Yes);
    trigger.arm(2);
    assert_eq!((trigger.state(), trigger.pass()), (State::Armed, Pass::Yes));
    assert!(trigger.fire(u32::MAX, 5));
    assert!(!trigger.fire(3, 6));
    let passed: [Pass; 4] = std::array::from_fn(|_| trigger.pass());
    assert_eq!(passed, [Pass::Yes, Pass::Last, Pass::No, Pass::No]);
    let fired = State::Fired {
        cause: u32::MAX,
        stamp: Some(5),
        left: 0,
    };
    assert_eq!(trigger.state(), fired);
    trigger.arm(0);
    assert!(trigger.fire(4, 7));
    assert_eq!(trigger.pass(), Pass::No);
    trigger.disarm();
    assert_eq!((trigger.state(), trigger.pass()), (State::Idle, Pass::Yes));
}

#[test]
fn arguments_have_names_and_units() {
    let of = |line: Line| line.arguments().collect::<Vec<_>>();
    let sent = [("items", ""), ("to", "hex"), ("wait", "ns")];
    assert_eq!(of(SENT.line()), sent);
    assert_eq!(of(IDLE.line()), []);
}
