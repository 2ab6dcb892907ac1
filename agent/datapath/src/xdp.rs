//! The XDP program of the uplink: where it is attached, and why not elsewhere.

use std::error::Error as _;
use std::fmt;

use dormouse_agent_sys::driver;

use super::Config;
use super::load::Loaded;

/// Drivers that keep checksum and segmentation offload for packets which their XDP program passes: they read the checksum's state from the
/// descriptor also then, and transmission is unchanged. Others (virtio_net, veth) turn offloads off for all packets.
///
/// What their `ndo_bpf` does otherwise (drivers/net/ethernet: bnxt_xdp.c, ena_xdp.c, i40e_main.c, ice_main.c, igb_main.c, igc_xdp.c,
/// ixgbe_main.c, en_main.c of mlx5): all stop and restart their queues for the first program; a program that takes its place costs
/// that again with `bnxt_en`, and with `igc` in older kernels. `bnxt_en` turns LRO and GRO_HW off; `ixgbe` and `mlx5_core` refuse the program while they are on. An MTU above a
/// buffer's is refused by `ena` (about 3,500 bytes; it also needs half of its queues free) and `igc` (1,500), by others for programs without
/// multi-buffer support. A refusal is no error here: the classifier does the work.
const KEEP_OFFLOADS: [&str; 8] = [
    "bnxt_en",
    "ena",
    "i40e",
    "ice",
    "igb",
    "igc",
    "ixgbe",
    "mlx5_core",
];

/// The pin of its link.
pub(super) const PIN: &str = "link_xdp_uplink";

/// When the XDP program is attached (`--xdp`). It is never attached in generic mode, which is slower than the classifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// In native mode, where the driver keeps its offloads.
    #[default]
    Auto,
    /// In native mode, wherever the driver has it.
    Native,
    /// Never.
    Off,
}

/// Whether the XDP program is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Xdp {
    /// In native mode.
    Native {
        /// The uplink's driver.
        driver: String,
    },
    /// Not: the classifier does its work.
    Off {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Xdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native { driver } => write!(f, "native, by {driver}"),
            Self::Off { reason } => write!(f, "off: {reason}"),
        }
    }
}

/// The VLANs of a network namespace (802.1Q), and the link of each.
const VLANS: &str = "/proc/thread-self/net/vlan/config";

/// What the choice depends on.
#[derive(Clone, Copy, Debug)]
struct Uplink<'a> {
    /// Its driver, if it is known.
    driver: Option<&'a str>,
    /// There are VLANs on it. A card may remove their tags before the program sees the frames, which would be judged as the uplink's own.
    has_vlans: bool,
}

/// Whether there are VLANs on a link, by the kernel's list: a line for each, `name | number | link`.
fn has_vlans(list: &str, link: &str) -> bool {
    list.lines()
        .filter_map(|line| line.rsplit_once('|'))
        .any(|(_, on)| on.trim() == link)
}

/// Whether to attach the program to an uplink; else why not.
fn choose(mode: XdpMode, uplink: Uplink<'_>) -> Result<(), String> {
    match (mode, uplink.driver) {
        (XdpMode::Off, _) => Err("--xdp off".to_owned()),
        _ if uplink.has_vlans => Err("there are VLANs on the uplink".to_owned()),
        (XdpMode::Native, _) => Ok(()),
        (XdpMode::Auto, None) => Err("the uplink's driver is not known".to_owned()),
        (XdpMode::Auto, Some(driver)) if KEEP_OFFLOADS.contains(&driver) => Ok(()),
        (XdpMode::Auto, Some(driver)) => Err(format!(
            "{driver} is not known to keep checksum and segmentation offload with it (--xdp native attaches it all the same)"
        )),
    }
}

/// Attaches the program as the mode says, replaces the one of the previous agent, or removes it.
pub(super) fn attach(loaded: &mut Loaded, config: &Config) -> Xdp {
    let driver = driver::driver(&config.uplink).ok();
    let pin = config.pins().join(PIN);
    // Without the kernel's module there is no such list.
    let vlans = std::fs::read_to_string(VLANS).unwrap_or_default();
    let uplink = Uplink {
        driver: driver.as_deref(),
        has_vlans: has_vlans(&vlans, &config.uplink),
    };
    let attached = choose(config.xdp, uplink).and_then(|()| {
        let attached = loaded.attach_xdp(&pin, config);
        attached.map_err(|error| {
            let cause = error.source().map(|cause| format!(": {cause}"));
            format!("{error}{}", cause.unwrap_or_default())
        })
    });
    match attached {
        Ok(()) => Xdp::Native {
            driver: driver.unwrap_or_default(),
        },
        Err(reason) => {
            // Without its pin, the link of a previous agent ends. Mostly there is none.
            let _ = std::fs::remove_file(&pin);
            Xdp::Off { reason }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(driver: Option<&str>) -> Uplink<'_> {
        Uplink {
            driver,
            has_vlans: false,
        }
    }

    #[test]
    fn auto_attaches_where_offloads_are_kept_and_says_why_not_elsewhere() {
        assert_eq!(choose(XdpMode::Auto, by(Some("ice"))), Ok(()));
        for driver in ["veth", "virtio_net", "bridge"] {
            let reason = choose(XdpMode::Auto, by(Some(driver))).unwrap_err();
            assert!(reason.contains(driver) && reason.contains("--xdp native"));
        }
        assert!(choose(XdpMode::Auto, by(None)).is_err());
    }

    #[test]
    fn native_and_off_do_not_depend_on_the_driver() {
        for driver in [None, Some("veth"), Some("ice")] {
            assert_eq!(choose(XdpMode::Native, by(driver)), Ok(()));
            assert!(choose(XdpMode::Off, by(driver)).is_err());
        }
    }

    #[test]
    fn an_uplink_with_vlans_has_no_program() {
        let list = "VLAN Dev name\t | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\neth0.100       | 100  | eth0\n";
        assert!(has_vlans(list, "eth0"));
        assert!(!has_vlans(list, "eth1") && !has_vlans("", "eth0"));
        for mode in [XdpMode::Auto, XdpMode::Native] {
            let uplink = Uplink {
                driver: Some("ice"),
                has_vlans: true,
            };
            assert!(choose(mode, uplink).unwrap_err().contains("VLANs"));
        }
    }
}
