//! Fixtures that the tests of one program share: built by the first test that asks, used by one test at a time, and removed
//! when the program ends. A test that fails takes its fixture with it: the next one gets a new one.

use std::ops::{Deref, DerefMut};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::{names, role};

/// One test at a time, of whatever fixture: they measure, and machines have few cores.
static TURN: Mutex<()> = Mutex::new(());

/// What a fixture is made of.
pub trait Fixture: Sized + Send {
    /// Builds it with a world of this prefix, for the first test that asks.
    fn build(prefix: &str) -> Self;

    /// What helps to understand a failure.
    fn report(&self) -> String;
}

/// A fixture, once a test has asked for it.
#[derive(Debug)]
pub struct Shared<T> {
    kept: Mutex<Option<Kept<T>>>,
    build: fn(&str) -> T,
}

#[derive(Debug)]
struct Kept<T> {
    fixture: T,
    /// Removes the world when this process ends: its standard input is open until then.
    _remover: Child,
}

impl<T: Fixture> Shared<T> {
    /// Nothing yet.
    #[expect(
        clippy::new_without_default,
        reason = "a static needs a const function"
    )]
    pub const fn new() -> Self {
        Self::built_by(T::build)
    }

    /// Nothing yet, and another way to build it, by the prefix of its world.
    pub const fn built_by(build: fn(&str) -> T) -> Self {
        Self {
            kept: Mutex::new(None),
            build,
        }
    }

    /// The fixture, for this test alone until the lease is dropped.
    pub fn lease(&'static self) -> Lease<T> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_none() {
            let prefix = names::world();
            // Before the world: a program that is killed while it builds leaves nothing either.
            let remover = role::remove_at_end(&prefix);
            *kept = Some(Kept {
                fixture: (self.build)(&prefix),
                _remover: remover,
            });
        }
        Lease { kept, _turn: turn }
    }
}

/// A test's use of a fixture.
#[derive(Debug)]
pub struct Lease<T: Fixture + 'static> {
    kept: MutexGuard<'static, Option<Kept<T>>>,
    _turn: MutexGuard<'static, ()>,
}

impl<T: Fixture> Deref for Lease<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.kept.as_ref().expect("a lease has a fixture").fixture
    }
}

impl<T: Fixture> DerefMut for Lease<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.kept.as_mut().expect("a lease has a fixture").fixture
    }
}

impl<T: Fixture> Drop for Lease<T> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.report());
            // What state it is in is not known.
            *self.kept = None;
        }
    }
}
