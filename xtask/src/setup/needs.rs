//! The dependencies of builds and tests: purpose, detection and installation of each.

/// A dependency.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Need {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its purpose.
    pub(crate) why: &'static str,
    /// How it is detected.
    pub(crate) probe: Probe,
    /// How it is installed.
    pub(crate) cure: Cure,
}

/// The detection of a dependency.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Probe {
    /// A program on the search path.
    Program(&'static str),
    /// A file with a fixed path.
    File(&'static str),
    /// A program beside the cargo that runs xtask; rustup's folder has a proxy for each component, installed or not.
    Component(&'static str),
    /// A compiler that can build for BPF.
    BpfCompiler,
}

/// The installation of a dependency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cure {
    /// Debian packages.
    Packages(&'static [&'static str]),
    /// A component of the Rust toolchain that runs xtask.
    Component(&'static str),
    /// Debian's Rust with its BPF library, or rustup's nightly with the library's source.
    BpfCompiler,
    /// The linker from crates.io, against the LLVM of the compiler above.
    BpfLinker,
}

/// All dependencies, in the order of reports.
pub(crate) const NEEDS: &[Need] = &[
    Need {
        name: "cc",
        why: "Rust links with it, and rustls compiles with it",
        probe: Probe::Program("cc"),
        cure: Cure::Packages(&["gcc", "libc6-dev"]),
    },
    Need {
        name: "rustfmt",
        why: "`cargo xtask test` checks the formatting",
        probe: Probe::Component("cargo-fmt"),
        cure: Cure::Component("rustfmt"),
    },
    Need {
        name: "clippy",
        why: "`cargo xtask test` checks the lints",
        probe: Probe::Component("cargo-clippy"),
        cure: Cure::Component("clippy"),
    },
    Need {
        name: "a Rust compiler for BPF",
        why: "compiles the BPF programs",
        probe: Probe::BpfCompiler,
        cure: Cure::BpfCompiler,
    },
    Need {
        name: "bpf-linker",
        why: "links the BPF object",
        probe: Probe::Program("bpf-linker"),
        cure: Cure::BpfLinker,
    },
    Need {
        name: "protoc",
        why: "compiles the .proto files of the fleet, the store and the scheduler",
        probe: Probe::Program("protoc"),
        cure: Cure::Packages(&["protobuf-compiler", "libprotobuf-dev"]),
    },
    Need {
        name: "protobuf's standard .proto files",
        why: "this repository's .proto files import them",
        probe: Probe::File("/usr/include/google/protobuf/descriptor.proto"),
        cure: Cure::Packages(&["libprotobuf-dev"]),
    },
    Need {
        name: "ip",
        why: "builds the network namespaces of demo, tests and benches",
        probe: Probe::Program("ip"),
        cure: Cure::Packages(&["iproute2"]),
    },
    Need {
        name: "ethtool",
        why: "configures the offloads of veth links in tests and benches",
        probe: Probe::Program("ethtool"),
        cure: Cure::Packages(&["ethtool"]),
    },
    Need {
        name: "bpftool",
        why: "shows what is loaded in the kernel",
        probe: Probe::Program("bpftool"),
        cure: Cure::Packages(&["bpftool"]),
    },
    Need {
        name: "etcdctl",
        why: "the tests access the store with etcd's client",
        probe: Probe::Program("etcdctl"),
        cure: Cure::Packages(&["etcd-client"]),
    },
    Need {
        name: "kubectl",
        why: "the tests access the API with Kubernetes' client",
        probe: Probe::Program("kubectl"),
        cure: Cure::Packages(&["kubernetes-client"]),
    },
    Need {
        name: "python3",
        why: "its web server is one of the demo's apps",
        probe: Probe::File("/usr/bin/python3"),
        cure: Cure::Packages(&["python3"]),
    },
    Need {
        name: "curl",
        why: "the demo sends requests to its apps with it",
        probe: Probe::Program("curl"),
        cure: Cure::Packages(&["curl"]),
    },
    Need {
        name: "bridge",
        why: "writes the static forwarding entries of the bench's plain nodes",
        probe: Probe::Program("bridge"),
        cure: Cure::Packages(&["iproute2"]),
    },
    Need {
        name: "ip6tables",
        why: "`cargo xtask bench dataplane` compares with kube-proxy's rules",
        probe: Probe::Program("ip6tables-restore"),
        cure: Cure::Packages(&["iptables"]),
    },
    Need {
        name: "nft",
        why: "`cargo xtask bench dataplane` compares with kube-proxy's rules",
        probe: Probe::Program("nft"),
        cure: Cure::Packages(&["nftables"]),
    },
    Need {
        name: "iperf3",
        why: "the tests of Services and `cargo xtask bench dataplane` measure streams with it",
        probe: Probe::Program("iperf3"),
        cure: Cure::Packages(&["iperf3"]),
    },
    Need {
        name: "strace",
        why: "the tests of crashes count system calls with it",
        probe: Probe::Program("strace"),
        cure: Cure::Packages(&["strace"]),
    },
    Need {
        name: "the reference CNI plugins",
        why: "the plugin's tests and `cargo xtask bench cni` compare with bridge and host-local",
        probe: Probe::File("/usr/lib/cni/bridge"),
        cure: Cure::Packages(&["containernetworking-plugins"]),
    },
    Need {
        name: "containerd",
        why: "the tests of runtimes start pods with it (29 MB of packages, with runc)",
        probe: Probe::Program("containerd"),
        cure: Cure::Packages(&["containerd"]),
    },
    Need {
        name: "podman",
        why: "the tests of runtimes start containers with it (12 MB of packages)",
        probe: Probe::Program("podman"),
        cure: Cure::Packages(&["podman"]),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_need_has_a_unique_name_and_a_purpose() {
        for (place, need) in NEEDS.iter().enumerate() {
            assert!(!need.why.is_empty(), "{} has no reason", need.name);
            let same = NEEDS
                .iter()
                .skip(place + 1)
                .find(|other| other.name == need.name);
            assert_eq!(same, None);
        }
    }
}
