//! Apps at even distances in the VIP range, and their manifest.

use std::fmt::Display;
use std::fs;
use std::net::{Ipv6Addr, SocketAddrV6};

use anyhow::{Context, Result};
use dormouse_world::VIP_RANGE;

use crate::demo::cluster::Cluster;

/// Apps with names of one kind. Their pods run until the benchmark ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Apps {
    /// The names' first part.
    pub(super) name: &'static str,
    /// The number of apps.
    pub(super) count: u32,
    /// The first VIP's place in the range.
    pub(super) first: u32,
    /// Distance of the VIPs.
    pub(super) step: u32,
    /// Pods of each without a request: 0 or 1.
    pub(super) min: u32,
}

impl Apps {
    fn vip(&self, number: u32) -> Ipv6Addr {
        let place = self.first + number * self.step;
        Ipv6Addr::from_bits(VIP_RANGE.to_bits() | u128::from(place))
    }

    /// Address and port of the app with this number, for clients.
    pub(super) fn address(&self, number: u32) -> SocketAddrV6 {
        SocketAddrV6::new(self.vip(number), 80, 0, 0)
    }

    /// Creates the apps.
    pub(super) fn create(&self, cluster: &Cluster) -> Result<()> {
        let folder = &cluster.world().control().folder;
        let manifest = folder.join(format!("{}.yaml", self.name));
        fs::write(&manifest, self.manifest()).context("failed to write the manifest")?;
        cluster.dormouse(&["apply", "-f", &manifest.display().to_string()])?;
        Ok(())
    }

    fn manifest(&self) -> String {
        let scale = format!("min: {}, max: 1, window: 10m", self.min);
        let documents = (0..self.count).map(|number| {
            let name = format!("{}-{number}", self.name);
            document(&name, self.vip(number), &scale)
        });
        documents.collect()
    }
}

/// The manifest of an app. `scale`: its settings there, without the burst capacity.
pub(super) fn document(name: &str, vip: impl Display, scale: &str) -> String {
    format!(
        "---\napiVersion: dormouse.dev/v1alpha1\nkind: App\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  vip: {vip}\n  \
         port: 80\n  targetPort: 8080\n  container: {{name: hello, command: [dormouse-hello]}}\n  \
         scale: {{{scale}, targetBurstCapacity: 0}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apps_have_vips_of_their_own() {
        let apps = Apps {
            name: "one",
            count: 3,
            first: 7,
            step: 0x1_0000,
            min: 0,
        };
        assert_eq!(apps.address(2).to_string(), "[fd00:10::2:7]:80");
        let manifest = apps.manifest();
        for vip in ["fd00:10::7\n", "fd00:10::1:7\n", "fd00:10::2:7\n"] {
            assert!(manifest.contains(vip), "{manifest}");
        }
    }
}
