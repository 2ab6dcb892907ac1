//! The ports on which activators listen: those of the apps of all shards, counted.

use std::collections::{BTreeMap, BTreeSet};

/// The ports of all apps.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    /// The number of apps on each port.
    apps: BTreeMap<u16, usize>,
    changed: bool,
}

impl Ports {
    /// An app's port has changed; none: there is no such app.
    pub(crate) fn moved(&mut self, before: Option<u16>, after: Option<u16>) {
        if before == after {
            return;
        }
        if let Some(port) = after {
            let apps = self.apps.entry(port).or_default();
            self.changed |= *apps == 0;
            *apps += 1;
        }
        if let Some(port) = before
            && let Some(apps) = self.apps.get_mut(&port)
        {
            *apps -= 1;
            if *apps == 0 {
                self.apps.remove(&port);
                self.changed = true;
            }
        }
    }

    /// The ports, if they have changed since the previous call.
    pub(crate) fn take_changed(&mut self) -> Option<BTreeSet<u16>> {
        std::mem::take(&mut self.changed).then(|| self.apps.keys().copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_listened_on_while_an_app_has_it() {
        let mut ports = Ports::default();
        ports.moved(None, Some(80));
        assert_eq!(ports.take_changed(), Some(BTreeSet::from([80])));
        ports.moved(None, Some(80));
        ports.moved(Some(80), Some(80));
        assert_eq!(ports.take_changed(), None);
        ports.moved(Some(80), Some(81));
        assert_eq!(ports.take_changed(), Some(BTreeSet::from([80, 81])));
        ports.moved(Some(80), None);
        assert_eq!(ports.take_changed(), Some(BTreeSet::from([81])));
    }
}
