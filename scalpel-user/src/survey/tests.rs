//! Real programs of this machine: what is there is asked, not assumed.

use super::chosen::ChosenSite;
use super::*;
use crate::event::Pid;
use crate::plan::words::Pattern as Word;

fn choice(include: &[&str], libs: &[&str]) -> Choice {
    Choice {
        include: include
            .iter()
            .map(|text| text.parse::<Word>().unwrap())
            .collect(),
        exclude: Vec::new(),
        libs: libs.iter().map(ToString::to_string).collect(),
        max_probes: None,
        awaited: Vec::new(),
    }
}

fn ask<T>(choice: &Choice, survey: impl FnOnce(&Question<'_>) -> T) -> T {
    survey(&Question {
        choice,
        exits: Exits::Default,
        kernel: KernelRelease(6, 18, 0),
        most: None,
    })
}

#[test]
fn our_own_process_is_a_rust_program_whose_main_image_is_chosen() {
    let process = Process::open(Pid(std::process::id())).unwrap();
    let survey = ask(&choice(&[], &[]), |question| of_process(&process, question)).unwrap();
    assert_eq!(survey.images.len(), 1);
    let image = survey.images.first().unwrap();
    assert!(image.main && !image.go && image.chosen.len() > 1000);
    assert!(
        survey
            .facts
            .throwing_images
            .iter()
            .any(|name| image.path.ends_with(name))
    );
}

#[test]
fn beyond_a_limit_the_largest_are_decided_about_and_every_other_is_named_as_left_out() {
    let process = Process::open(Pid(std::process::id())).unwrap();
    let choice = choice(&[], &[]);
    let all = ask(&choice, |question| of_process(&process, question)).unwrap();
    let some = ask(&choice, |question| {
        let most = Some((100, "a limit"));
        of_process(&process, &Question { most, ..*question })
    })
    .unwrap();
    let (all, some) = (&all.images[0].chosen, &some.images[0].chosen);
    let told = |chosen: &[Chosen]| -> Vec<_> {
        let key = |one: &Chosen| (one.vaddr, one.info.name.clone());
        chosen.iter().map(key).collect()
    };
    assert_eq!(told(all), told(some));
    let left_out: Result<ChosenSite, String> = Err(left_out_by("a limit"));
    let is_left_out = |one: &&Chosen| one.site == left_out;
    let decided: Vec<&Chosen> = some.iter().filter(|one| !is_left_out(one)).collect();
    assert_eq!(decided.iter().filter(|one| one.site.is_ok()).count(), 100);
    // What was decided does not depend on the limit.
    let same = |one: &&Chosen| all.iter().any(|other| other == *one);
    assert!(decided.iter().all(same));
    let hottest = decided.iter().map(|one| one.heat).max();
    let coldest = some.iter().filter(is_left_out).map(|one| one.heat).min();
    assert!(hottest <= coldest, "{hottest:?} {coldest:?}");
}

#[test]
fn a_library_is_chosen_by_what_people_type() {
    for glob in ["libc", "libc.so*", "*/libc.so.6"] {
        let survey = ask(&choice(&["malloc"], &[glob]), |question| {
            of_program(&["/bin/sh".into()], question)
        })
        .unwrap();
        let names: Vec<&str> = survey
            .images
            .iter()
            .flat_map(|image| &image.chosen)
            .map(|chosen| chosen.info.name.as_str())
            .collect();
        assert!(names.contains(&"malloc"), "{glob}: {names:?}");
        assert!(survey.images.iter().all(|image| !image.main));
    }
}

#[test]
fn what_matches_nothing_is_named_with_what_there_is() {
    let error = |include: &[&str], libs: &[&str]| {
        ask(&choice(include, libs), |question| {
            of_program(&["/bin/sh".into()], question)
        })
        .unwrap_err()
        .to_string()
    };
    assert!(
        error(&["mallok"], &["libc"]).contains("did you mean"),
        "{}",
        error(&["mallok"], &["libc"])
    );
    assert!(error(&[], &["libnothing"]).contains("libc.so"));
}

#[test]
fn a_file_that_is_no_program_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "just text").unwrap();
    let error = ask(&choice(&[], &[]), |question| of_file(&path, question)).unwrap_err();
    assert!(error.to_string().contains("notes.txt"), "{error}");
}

#[test]
fn a_reader_that_dies_or_babbles_is_an_error_that_says_so_and_not_an_answer() {
    // Twelve zeros: the word that it is confined.
    let said = |then: &str| {
        let script = format!("head -c 12 /dev/zero >&0; {then}");
        let sandbox = Sandbox::of(std::process::Command::new("sh").args(["-c", &script])).unwrap();
        let choice = choice(&[], &[]);
        let mut survey = Survey::default();
        let candidates = [open(Path::new("/bin/sh"), true).unwrap()];
        ask(&choice, |question| {
            apart::survey(sandbox, &mut survey, &candidates, question, &|_path| None)
        })
        .unwrap_err()
        .to_string()
    };
    assert!(said("kill -SEGV $$").contains("signal 11"));
    assert!(said("exit 3").contains("exit code 3"));
    assert!(crate::sandbox::cpu_ns() > 0, "what it took is nobody's");
    // A length of five, no files, and then what no answer is.
    assert!(
        said("printf '\\5\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\377\\377\\377\\377\\377' >&0; sleep 1")
            .contains("ended before")
    );
    let refused = Sandbox::of(
        std::process::Command::new("sh")
            .args(["-c", "printf '\\2\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0no' >&0"]),
    );
    assert_eq!(refused.unwrap_err().to_string(), "no");
}
