//! Opening, writing and reading journals whose payloads are their marks.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use dormouse_wal::{
    Config, Durability, Failure, Identity, Journal, OpenError, PreviousRun, Record, Recovered,
    Recovery, Ticket,
};

use crate::disk::Disk;

pub(crate) const KIND: u8 = 1;

pub(crate) const IDENTITY: Identity = Identity {
    cluster: 0xc1,
    member: 0x3e,
};

pub(crate) fn config() -> Config {
    Config {
        identity: IDENTITY,
        segment_bytes: 64 << 20,
        boot: 1,
    }
}

/// A config whose segments hold few records.
pub(crate) fn small_segments() -> Config {
    Config {
        segment_bytes: 300,
        ..config()
    }
}

/// The marks of the records of a disk, and the directory that is ready to be started.
pub(crate) fn read(disk: &Disk, config: Config) -> Result<(Vec<u64>, Recovered), OpenError> {
    let mut marks = Vec::new();
    let recovery = Recovery::open(Arc::new(disk.clone()), config)?;
    let recovered = recovery.replay(&mut |records: &[Record<'_>]| {
        for record in records {
            assert_eq!(record.kind, KIND);
            marks.push(u64::from_le_bytes(record.payload[..8].try_into().unwrap()));
        }
        Ok(())
    })?;
    Ok((marks, recovered))
}

pub(crate) fn marks(disk: &Disk) -> Vec<u64> {
    read(disk, config()).unwrap().0
}

pub(crate) fn previous_run(disk: &Disk, config: Config) -> PreviousRun {
    read(disk, config).unwrap().1.previous_run()
}

/// Opens a disk's journal after its last record.
pub(crate) fn open(disk: &Disk, config: Config) -> Journal {
    let (marks, recovered) = read(disk, config).unwrap();
    let last = marks.last().copied().unwrap_or(0);
    recovered.start(last, Box::new(|| ())).unwrap()
}

pub(crate) fn append(journal: &Journal, mark: u64, durability: Durability) -> Ticket {
    journal.append((KIND, mark), durability, |out| {
        out.extend_from_slice(&mark.to_le_bytes());
    })
}

/// Appends a record and waits for its acknowledgement.
pub(crate) fn write(journal: &Journal, mark: u64, durability: Durability) -> Result<(), Failure> {
    let ticket = append(journal, mark, durability);
    run(journal.committed(ticket))
}

pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

/// Waits until a condition holds.
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}
