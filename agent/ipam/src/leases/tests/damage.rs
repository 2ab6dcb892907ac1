//! After any damage to the file, the records read are a prefix of the records written.

use super::*;

fn eventful_opening() -> Opening {
    Opening {
        range4: Some("10.0.0.0/28".parse().unwrap()),
        ..opening("2001:db8::/96", BOOT)
    }
}

/// The bytes of a journal with every kind of change.
fn eventful_journal(path: &Path) -> Vec<u8> {
    for life in 0..2 {
        let leases = Leases::open(path, eventful_opening()).unwrap();
        for i in 0..10u32 {
            let request = Request {
                cohort: (i == 2).then_some(5000),
                ipv4: if i < 3 { Ipv4Wish::Any } else { Ipv4Wish::None },
                wired: i != 3,
                ..request(&format!("c{life}{i}"))
            };
            let lease = leases.reserve(&request, now(i.into())).unwrap();
            leases.confirm(lease.suffix).unwrap();
            if i % 2 == 0 {
                leases.release(lease.suffix).unwrap();
                leases.free(lease.suffix, now(u64::from(i) + 1)).unwrap();
            }
        }
    }
    let mut bytes = fs::read(path).unwrap();
    let (_, whole) = scan(&bytes).unwrap();
    bytes.truncate(whole);
    bytes
}

fn replayed(records: &[Record]) -> Vec<Record> {
    let opening = eventful_opening();
    let mut allocator = Allocator::new(
        opening.prefix,
        opening.range4,
        Order::Counting,
        opening.quarantine,
    );
    for record in records {
        allocator.apply(record);
    }
    sorted(allocator.snapshot())
}

/// Opens the damaged journal: its records must be a prefix of `records`, and a new lease must not use a leased address.
fn check(path: &Path, damaged: &[u8], records: &[Record]) {
    let (read, _) = scan(damaged).unwrap();
    assert!(read.len() < records.len());
    assert_eq!(read, records[..read.len()]);
    fs::write(path, damaged).unwrap();
    let leases = Leases::open(path, eventful_opening()).unwrap();
    assert_eq!(held(&leases), replayed(&read));
    let before = leases.leases();
    let request = Request {
        ipv4: Ipv4Wish::Any,
        ..request("new")
    };
    let new = leases.reserve(&request, now(7)).unwrap();
    assert!(before.iter().all(|old| old.suffix != new.suffix));
    assert!(before.iter().all(|old| old.ipv4 != new.ipv4));
}

#[test]
fn a_journal_cut_at_any_byte_recovers_its_whole_records() {
    let folder = folder();
    let path = folder.path().join("leases");
    let bytes = eventful_journal(&path);
    let (records, _) = scan(&bytes).unwrap();
    for cut in 0..bytes.len() {
        check(&path, &bytes[..cut], &records);
    }
}

#[test]
fn a_changed_byte_ends_the_journal_there() {
    let folder = folder();
    let path = folder.path().join("leases");
    let bytes = eventful_journal(&path);
    let (records, _) = scan(&bytes).unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0xff;
        check(&path, &damaged, &records);
        for bit in 0..8 {
            damaged[at] = bytes[at] ^ 1 << bit;
            let (read, _) = scan(&damaged).unwrap();
            assert!(read.len() < records.len() && read == records[..read.len()]);
        }
    }
}

/// A disk may write the sectors of one batch in any order and lose the power in between.
#[test]
fn sectors_that_were_not_synced_may_be_lost_in_any_combination() {
    const SECTOR: usize = 512;
    let folder = folder();
    let path = folder.path().join("leases");
    let bytes = eventful_journal(&path);
    let (records, whole) = scan(&bytes).unwrap();
    let synced = bytes.len() / 3;
    let (kept, _) = scan(&bytes[..synced]).unwrap();
    let sectors: Vec<_> = (synced.next_multiple_of(SECTOR)..whole)
        .step_by(SECTOR)
        .collect();
    assert!(sectors.len() >= 2, "{whole} bytes");
    for lost in 1..1u32 << sectors.len() {
        let mut damaged = bytes.clone();
        for (index, start) in sectors.iter().enumerate() {
            if lost & 1 << index != 0 {
                damaged[*start..whole.min(start + SECTOR)].fill(0);
            }
        }
        check(&path, &damaged, &records);
        assert!(scan(&damaged).unwrap().0.len() >= kept.len());
    }
}

#[test]
fn bytes_cut_at_open_are_counted() {
    let folder = folder();
    let path = folder.path().join("leases");
    let mut bytes = eventful_journal(&path);
    assert_eq!(open(&path).writes().cut_bytes, 0);
    bytes.extend([7; 9]);
    fs::write(&path, &bytes).unwrap();
    assert_eq!(open(&path).writes().cut_bytes, 9);
}
