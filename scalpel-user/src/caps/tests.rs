//! A table of kernels, and what each can do.

use std::collections::BTreeSet;

use super::*;

fn host(release: &str) -> Facts {
    Facts {
        release: release.parse().unwrap(),
        release_text: release.into(),
        machine: "x86_64".into(),
        emulated_by: None,
        virtual_machine: false,
        preemption: Some(Preemption::Full),
        btf: true,
        lockdown: Lockdown::None,
        paranoid: Some(2),
        max_sample_rate: Some(100_000),
        capabilities: BTreeSet::from([Capability::Bpf, Capability::Perfmon, Capability::SysAdmin]),
        pmu: true,
        uprobe_pmu: true,
        tracefs: true,
        initial_pid_namespace: Some(true),
        initial_user_namespace: Some(true),
        memlock: None,
        open_files: Some(1024),
        clocksource: Some("tsc".into()),
        kernel_symbols: true,
        processors: 8,
        root: true,
        trial: None,
    }
}

#[test]
fn releases_compare_as_numbers() {
    let check = |text: &str, expect: Release| assert_eq!(text.parse(), Ok(expect), "{text}");
    check("6.18.44-fc-v595", Release(6, 18, 44));
    check("5.15.0-91-generic", Release(5, 15, 0));
    check("6.13-rc1", Release(6, 13, 0));
    check("6.6+", Release(6, 6, 0));
    check("4.18.0-553.el8_10.x86_64", Release(4, 18, 0));
    assert!("linux".parse::<Release>().is_err());
    assert!("6".parse::<Release>().is_err());
    assert!(Release(6, 9, 12) < Release(6, 10, 0));
}

#[test]
fn each_kernel_does_what_it_can() {
    // release, attach, session, pid filter, returns while sampling
    let table = [
        ("5.15.0", Attach::Perf, false, true, false),
        ("6.5.13", Attach::Perf, false, true, false),
        ("6.6.0", Attach::Multi, false, false, false),
        ("6.9.12", Attach::Multi, false, false, false),
        ("6.10.0", Attach::Multi, false, true, false),
        ("6.12.40", Attach::Multi, false, true, false),
        ("6.13.0", Attach::Multi, true, true, true),
        ("6.18.44", Attach::Multi, true, true, true),
        ("7.0.0", Attach::Multi, true, true, true),
    ];
    for (release, attach, session, pid_filter, returns) in table {
        let able = Abilities::of(&host(release));
        assert_eq!(able.attach.choice, attach, "{release}");
        assert_eq!(able.session.choice, session, "{release}");
        assert_eq!(able.pid_filter.choice, pid_filter, "{release}");
        assert_eq!(able.returns_while_sampling.choice, returns, "{release}");
        assert!(able.blockers.is_empty(), "{release}: {:?}", able.blockers);
    }
}

#[test]
fn hazards_begin_and_end_where_the_kernel_log_says() {
    let check = |release: &str, hazard: Hazard, expect: bool| {
        assert_eq!(
            hazards(&host(release)).contains(&hazard),
            expect,
            "{release} {hazard:?}"
        );
    };
    check("6.10.14", Hazard::SeccompKillsReturns, false);
    check("6.11.0", Hazard::SeccompKillsReturns, true);
    check("6.12.13", Hazard::SeccompKillsReturns, true);
    check("6.12.14", Hazard::SeccompKillsReturns, false);
    check("6.13.0", Hazard::SeccompKillsReturns, true);
    check("6.13.2", Hazard::SeccompKillsReturns, true);
    check("6.13.3", Hazard::SeccompKillsReturns, false);
    check("6.14.0", Hazard::SeccompKillsReturns, false);
    check("6.6.58", Hazard::CallchainRace, true);
    check("6.12.99", Hazard::CallchainRace, true);
    check("6.13.0", Hazard::CallchainRace, false);
    check("6.12.0", Hazard::PrivateStack, false);
    check("6.13.0", Hazard::PrivateStack, true);
    check("6.17.9", Hazard::OptimizedRedZone, false);
    check("6.18.0", Hazard::OptimizedRedZone, true);
    check("6.5.0", Hazard::PidFilter, false);
    check("6.9.0", Hazard::PidFilter, true);
    check("6.10.0", Hazard::PidFilter, false);
    check("6.10.0", Hazard::ShadowStackReturns, true);
    check("6.11.0", Hazard::ShadowStackReturns, false);
}

#[test]
fn a_kernel_that_does_not_preempt_does_not_mix_up_stacks() {
    let check = |preemption: Option<Preemption>, expect: bool| {
        let facts = Facts {
            preemption,
            ..host("6.18.0")
        };
        assert_eq!(
            hazards(&facts).contains(&Hazard::PrivateStack),
            expect,
            "{preemption:?}"
        );
    };
    check(Some(Preemption::None), false);
    check(Some(Preemption::Voluntary), false);
    check(Some(Preemption::Lazy), true);
    check(Some(Preemption::Full), true);
    check(None, true);
}

fn blocked(change: impl Fn(&mut Facts), gate: Gate, what: &str, next: &str) {
    let mut facts = host("6.18.0");
    change(&mut facts);
    let able = Abilities::of(&facts);
    let [blocker] = &able.blockers[..] else {
        panic!("{what}: {:?}", able.blockers)
    };
    assert_eq!(blocker.gate, gate, "{blocker:?}");
    assert!(
        blocker.what.contains(what) && blocker.next.contains(next),
        "{blocker:?}"
    );
}

#[test]
fn what_stands_in_the_way_is_named_with_the_next_step() {
    blocked(
        |facts| facts.machine = "aarch64".into(),
        Gate::System,
        "aarch64",
        "x86_64",
    );
    blocked(
        |facts| facts.emulated_by = Some("gVisor".into()),
        Gate::System,
        "gVisor",
        "host",
    );
    blocked(
        |facts| facts.btf = false,
        Gate::System,
        "/sys/kernel/btf/vmlinux",
        "CONFIG_DEBUG_INFO_BTF",
    );
    blocked(
        |facts| facts.lockdown = Lockdown::Confidentiality,
        Gate::Permission,
        "confidentiality",
        "lockdown=integrity",
    );
    blocked(
        |facts| facts.initial_user_namespace = Some(false),
        Gate::Permission,
        "user namespace",
        "host",
    );
    blocked(
        |facts| facts.initial_pid_namespace = Some(false),
        Gate::System,
        "pid namespace",
        "--pid=host",
    );
    blocked(
        |facts| facts.trial = Some(Err("EINVAL".into())),
        Gate::System,
        "EINVAL",
        "dmesg",
    );
}

#[test]
fn the_missing_capability_is_named_by_what_the_kernel_needs() {
    let user = |facts: &mut Facts, held: &[Capability]| {
        facts.root = false;
        facts.capabilities = held.iter().copied().collect();
    };
    blocked(
        |facts| user(facts, &[]),
        Gate::Permission,
        "missing CAP_BPF and CAP_PERFMON",
        "setcap",
    );
    blocked(
        |facts| user(facts, &[Capability::Bpf]),
        Gate::Permission,
        "missing CAP_PERFMON",
        "setcap",
    );
    blocked(
        |facts| facts.capabilities.clear(),
        Gate::Permission,
        "CAP_BPF",
        "--cap-add",
    );
    let mut facts = host("6.18.0");
    user(&mut facts, &[Capability::Bpf, Capability::Perfmon]);
    assert!(Abilities::of(&facts).blockers.is_empty());
    let mut facts = host("6.1.0");
    user(&mut facts, &[Capability::Bpf, Capability::Perfmon]);
    let able = Abilities::of(&facts);
    assert_eq!(able.first_blocker().unwrap().what, "missing CAP_SYS_ADMIN");
}

#[test]
fn a_wrong_kernel_is_told_before_a_missing_capability() {
    let mut facts = host("4.18.0");
    facts.capabilities.clear();
    let able = Abilities::of(&facts);
    assert!(
        able.first_blocker().unwrap().what.contains("too old"),
        "{able:?}"
    );
}

#[test]
fn sampling_takes_the_cycle_counter_where_there_is_one() {
    let mut facts = host("6.18.0");
    assert_eq!(Abilities::of(&facts).sampler.choice, Sampler::Cycles);
    facts.pmu = false;
    facts.virtual_machine = true;
    let able = Abilities::of(&facts);
    assert_eq!(able.sampler.choice, Sampler::CpuClock);
    assert!(able.sampler.reason.contains("virtual machine"));
}
