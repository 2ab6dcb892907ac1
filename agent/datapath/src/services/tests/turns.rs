//! The turns of a sync: apps' entries and metrics get theirs in between.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use aya::maps::MapError;
use dormouse_agent_services::{Services, Strictness};
use dormouse_ebpf::maps::FrontendKey;
use dormouse_ebpf::service::Mode as AppMode;
use serde_json::json;

use super::bench::{apply, endpoint, node, service, slice};
use crate::app_entries;
use crate::arrays::Arrays;
use crate::entry::{Backend, Entry};
use crate::grace::Graces;
use crate::pool::Pool;
use crate::services::{Calls, Ledger, Registry};
use crate::write_through::KernelMap;
use crate::write_through::memory::{Memory, Trie};

/// A map that stops the sync at its first new entry.
struct Gate {
    map: Memory<FrontendKey, u32>,
    reached: SyncSender<()>,
    open: Option<Receiver<()>>,
}

impl KernelMap<FrontendKey, u32> for Gate {
    fn all(&self) -> Result<Vec<(FrontendKey, u32)>, MapError> {
        self.map.all()
    }

    fn put(&mut self, key: &FrontendKey, value: u32) -> Result<(), MapError> {
        if let Some(open) = self.open.take() {
            self.reached.send(()).unwrap();
            open.recv().unwrap();
        }
        self.map.put(key, value)
    }

    fn take(&mut self, key: &FrontendKey) -> Result<(), MapError> {
        self.map.take(key)
    }
}

fn app(vip: u32) -> Entry {
    let backend = Backend {
        address: "2001:db8::7".parse().unwrap(),
        port: 8000,
        weight: 1,
    };
    Entry {
        vip,
        mode: AppMode::Serve,
        share: 0,
        backends: vec![backend],
        leased: true,
        asleep: false,
        gone: false,
        port: 80,
        protocol: 6,
    }
}

#[test]
fn an_entry_is_published_in_the_middle_of_a_sync() {
    let (reached, at) = sync_channel(1);
    let (go, open) = sync_channel(1);
    let gate = Gate {
        map: Memory::default(),
        reached,
        open: Some(open),
    };
    let arrays = Arrays::anonymous().unwrap();
    let pool = Pool::read(&arrays, Graces::default());
    let calls = Calls {
        frontends: Box::new(gate),
        slot_options: Box::new(Memory::default()),
        source_ranges: Box::new(Trie::default()),
    };
    let mut registry = Registry::open(&arrays, calls, &[]).unwrap();
    let mut services = Services::new(node(), Strictness::KubeProxy);
    apply(&mut services, &service("s", "172.30.0.7", &json!({})), true);
    let endpoints = ["10.244.1.1", "10.244.1.2"].map(|address| endpoint(address, true));
    apply(&mut services, &slice("s", "", &endpoints), true);
    let changes = services.sync();
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| {
            let ledger = Ledger {
                services: &services,
                arrays: &arrays,
                pool: &pool,
            };
            registry.serve(ledger, &changes)
        });
        at.recv().unwrap();
        // The sync stands still until `go`: a call that waited for it would never return.
        app_entries::publish(&arrays, &pool, &app(7)).unwrap();
        app_entries::forget(&arrays, &pool, 7);
        app_entries::publish(&arrays, &pool, &app(8)).unwrap();
        assert_eq!(pool.used()[0], 3, "two of the Service, one of the app");
        go.send(()).unwrap();
        assert!(sync.join().unwrap().shed.is_empty());
    });
    assert_eq!(app_entries::followed(&arrays), [8]);
    assert_eq!(Pool::read(&arrays, Graces::default()).used(), pool.used());
}

#[test]
fn two_who_take_rows_at_once_never_get_the_same() {
    let arrays = Arrays::anonymous().unwrap();
    let pool = Pool::read(&arrays, Graces::default());
    std::thread::scope(|scope| {
        for first in [0, 500] {
            let (arrays, pool) = (&arrays, &pool);
            scope.spawn(move || {
                for vip in first..first + 500 {
                    app_entries::publish(arrays, pool, &app(vip)).unwrap();
                    if vip % 2 == 0 {
                        app_entries::forget(arrays, pool, vip);
                    }
                }
            });
        }
    });
    assert_eq!(pool.used()[0], 500);
    assert_eq!(Pool::read(&arrays, Graces::default()).used(), pool.used());
}
