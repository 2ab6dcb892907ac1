//! The table of what building and testing need, why, and how each is had.

/// One thing that a machine must have.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Need {
    /// What people call it.
    pub(crate) name: &'static str,
    /// What would not work without it.
    pub(crate) why: &'static str,
    /// How to see that it is there.
    pub(crate) probe: Probe,
    /// How to get it.
    pub(crate) cure: Cure,
}

/// How to see that something is there.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Probe {
    /// A program on the search path.
    Program(&'static str),
    /// A file at a fixed place.
    File(&'static str),
    /// A program beside the cargo that runs this; rustup's own folder has a stand-in for each, there or not.
    Component(&'static str),
    /// A compiler that can build for BPF.
    BpfCompiler,
}

/// How to get something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cure {
    /// Debian packages.
    Packages(&'static [&'static str]),
    /// A component of the Rust toolchain that runs this.
    Component(&'static str),
    /// Debian's Rust with its BPF library, or rustup's nightly with the library's source.
    BpfCompiler,
    /// The linker from crates.io, against the LLVM of the compiler above.
    BpfLinker,
}

/// Everything, in the order in which it is reported.
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
        why: "the kernel's half is Rust too",
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
        name: "protobuf's own .proto files",
        why: "ours import them",
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
        why: "makes a veth merge frames on arrival, as a network card does",
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
        why: "the tests talk to our store with etcd's own client",
        probe: Probe::Program("etcdctl"),
        cure: Cure::Packages(&["etcd-client"]),
    },
    Need {
        name: "kubectl",
        why: "the tests talk to our API with Kubernetes' own client",
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
        why: "asks the demo's apps as a person would",
        probe: Probe::Program("curl"),
        cure: Cure::Packages(&["curl"]),
    },
    Need {
        name: "bridge",
        why: "fixes the forwarding entries of the bench's plain nodes",
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
        why: "`cargo xtask bench dataplane` measures streams with it",
        probe: Probe::Program("iperf3"),
        cure: Cure::Packages(&["iperf3"]),
    },
    Need {
        name: "the reference CNI plugins",
        why: "`cargo xtask bench cni` compares with bridge and host-local",
        probe: Probe::File("/usr/lib/cni/bridge"),
        cure: Cure::Packages(&["containernetworking-plugins"]),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_need_is_named_once_and_says_why() {
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
