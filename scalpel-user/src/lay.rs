//! Lays a recording over what exists: reads sources and executables, finds the maps of the texts that ran, and keeps in
//! the genome what was found. For `record`, at its end, and for the commands of `genome`.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::catalog::{self, Catalog, Kept, Matches, Outcome};
use crate::function::{ExitStrategy, FunctionTable, Language};
use crate::genome::Genome;
use crate::genome::merge::Merged;
use crate::maps::find;
use crate::matching::{self, Matching};
use crate::output::Output;
use crate::static_::{self, Built};

/// Where the programs of the system are: nobody who records means them by his own code.
const SYSTEM: &[&str] = &[
    "/usr/", "/bin/", "/sbin/", "/lib", "/opt/", "/nix/", "/snap/",
];

/// Whether somebody waits for the end and not for the sources.
pub type Stop<'a> = dyn Fn() -> bool + Sync + 'a;

/// What is to be looked at for what exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    roots: Vec<PathBuf>,
    executables: Vec<PathBuf>,
}

impl Sources {
    /// Folders and executables as typed.
    ///
    /// # Errors
    /// Names the one that is not there, or is no folder.
    pub fn of(folders: &[PathBuf], executables: &[PathBuf]) -> anyhow::Result<Self> {
        Ok(Self {
            roots: folders
                .iter()
                .map(|root| folder(root))
                .collect::<anyhow::Result<_>>()?,
            executables: executables
                .iter()
                .map(|path| executable(path))
                .collect::<anyhow::Result<_>>()?,
        })
    }

    /// Whether nothing is to be looked at.
    pub const fn is_empty(&self) -> bool {
        self.roots.is_empty() && self.executables.is_empty()
    }

    /// Reads everything, or nothing once `stop` says so. What `before` knows of an unchanged source is not parsed again.
    ///
    /// # Errors
    /// Names the executable that cannot be read, or the folders that have nothing that is known.
    pub fn build(&self, before: &Kept, stop: &Stop<'_>) -> anyhow::Result<Built> {
        let built = static_::build(&self.roots, &self.executables, before, stop)?;
        if built.kept.catalog.is_empty() && !built.stopped {
            bail!(
                "no file of a known language lies below {}: name the folder of the sources with --src",
                self.shown()
            );
        }
        Ok(built)
    }

    fn shown(&self) -> String {
        let names = self.roots.iter().map(|root| root.display().to_string());
        names.collect::<Vec<_>>().join(", ")
    }

    /// These, and the executables whose functions were watched, unless they are the system's own or run a language of
    /// their own.
    fn with_own(&self, genome: &Genome) -> Self {
        let infos = || genome.functions.iter().map(|(_, info)| info);
        let mut sources = self.clone();
        if infos().any(|info| info.exit == ExitStrategy::Probe) {
            return sources;
        }
        for info in infos().filter(|info| info.exit != ExitStrategy::None) {
            let path = Path::new(&info.path);
            let is_own = path.is_absolute()
                && info.language != Language::Kernel
                && !SYSTEM.iter().any(|prefix| info.path.starts_with(prefix));
            if is_own && path.is_file() && !sources.executables.iter().any(|known| known == path) {
                sources.executables.push(path.to_owned());
            }
        }
        sources
    }
}

fn folder(root: &Path) -> anyhow::Result<PathBuf> {
    let found = root
        .canonicalize()
        .with_context(|| format!("cannot look into {}", root.display()))?;
    if !found.is_dir() {
        bail!(
            "{} is no folder: name an executable with --exe",
            root.display()
        );
    }
    Ok(found)
}

fn executable(path: &Path) -> anyhow::Result<PathBuf> {
    path.canonicalize()
        .with_context(|| format!("cannot read {}", path.display()))
}

/// Reads what exists, and keeps it in the genome with what each function is there. The recording is worth more than what
/// is laid under it: a failure is noted in it.
pub fn lay(
    genome: &mut Genome,
    sources: &Sources,
    before: &Kept,
    stop: &Stop<'_>,
    output: &Output,
) {
    if sources.is_empty() {
        return;
    }
    let own = sources.with_own(genome);
    let built = own.build(before, stop).or_else(|error| {
        // An executable that nobody named is no reason to have nothing.
        if own == *sources {
            return Err(error);
        }
        output.detail(&format!("{error:#}"));
        sources.build(before, stop)
    });
    match built {
        Ok(built) if built.stopped => genome.notes.push(
            "the sources were not read whole, for it was told to end: nothing is matched, and `genome match` can do it later"
                .into(),
        ),
        Ok(built) => {
            genome.catalog = built.kept.catalog;
            genome.facts = built.kept.facts;
            genome.matches = search(&genome.functions, &genome.catalog, output);
            let matching = Matching::kept(genome);
            genome.matches.states = matching.map(states).unwrap_or_default();
        }
        Err(error) => genome.notes.push(format!(
            "what exists could not be read, so nothing is matched: {error:#}"
        )),
    }
}

/// Looks for everything that nobody has looked for yet; `again`: and for what was not found.
pub fn complete(genome: &mut Genome, again: bool, output: &Output) {
    let known = &genome.matches.outcomes;
    let is_open = |outcome: Option<&Outcome>| match outcome {
        None => true,
        Some(Outcome::Unmatched(_)) => again,
        Some(Outcome::Matched(_)) => false,
    };
    let any_open = genome
        .functions
        .iter()
        .any(|(id, _)| is_open(known.get(&id)));
    if genome.catalog.is_empty() || !any_open {
        return;
    }
    let found = search(&genome.functions, &genome.catalog, output);
    for (id, outcome) in found.outcomes {
        if is_open(genome.matches.outcomes.get(&id)) {
            genome.matches.outcomes.insert(id, outcome);
        }
    }
    genome.matches.bundled.extend(found.bundled);
    genome.matches.built.extend(found.built);
    genome.matches.folded.extend(found.folded);
    genome.matches.maybe.extend(found.maybe);
}

/// Looks for every function again. What was found once stays found: the maps that it took may be gone.
pub fn again(merged: &mut Merged, output: &Output) {
    let found = search(&merged.functions, &merged.catalog, output);
    for (id, outcome) in found.outcomes {
        let known = merged.matches.outcomes.entry(id).or_insert(outcome);
        if known.definition().is_none() {
            *known = outcome;
        }
    }
    merged.matches.bundled.extend(found.bundled);
    merged.matches.built.extend(found.built);
    merged.matches.folded.extend(found.folded);
    merged.matches.maybe.extend(found.maybe);
}

/// Derives what became of each definition, from everything that was found.
pub fn derive_states(merged: &mut Merged) {
    // Of very many contexts the sum takes as much memory as all there is.
    if merged.catalog.is_empty() || merged.matches.is_empty() {
        merged.matches.states.clear();
        return;
    }
    let matching = Matching::kept(&merged.sum());
    merged.matches.states = matching.map(states).unwrap_or_default();
}

fn states(matching: Matching) -> Vec<catalog::State> {
    let states = matching.states.into_iter();
    states.map(|known| known.state).collect()
}

fn search(functions: &FunctionTable, catalog: &Catalog, output: &Output) -> Matches {
    let texts = texts(functions);
    let (maps, unusable) = find::find(
        texts.iter().map(|(path, hash)| (path.as_str(), *hash)),
        catalog::hash,
    );
    for map in unusable {
        output.warn(&format!(
            "the source map {} is of no use: {}",
            map.path.display(),
            map.why
        ));
    }
    matching::find(functions, catalog, &maps)
}

/// Texts that a probe told the hash of: each once.
fn texts(functions: &FunctionTable) -> Vec<(String, u64)> {
    let infos = functions.iter().map(|(_, info)| info);
    let mut texts: Vec<(String, u64)> = infos
        .filter(|info| info.place.text_hash != 0 && !info.path.is_empty())
        .map(|info| (info.path.clone(), info.place.text_hash))
        .collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::genome::tests::example;
    use crate::output::When;

    #[test]
    fn who_is_told_to_end_reads_no_further_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.py", "b.py"] {
            std::fs::write(folder.path().join(name), "def f(): pass\n").unwrap();
        }
        let sources = Sources::of(&[folder.path().to_owned()], &[]).unwrap();
        let output = Output::new(-1, When::Never);
        let laid = |stop: &Stop<'_>| {
            let mut genome = example();
            lay(&mut genome, &sources, &Kept::default(), stop, &output);
            genome
        };
        let whole = laid(&|| false);
        assert_eq!(whole.catalog.files.len(), 2);
        let asked = std::sync::atomic::AtomicU32::new(0);
        let second = || asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0;
        for stop in [&(|| true) as &Stop<'_>, &second] {
            let stopped = laid(stop);
            assert!(stopped.catalog.is_empty() && stopped.matches.is_empty());
            let notes = stopped.notes.len() - example().notes.len();
            assert_eq!(notes, 1);
            let note = stopped.notes.last().unwrap();
            assert!(note.contains("not read whole"), "{note}");
        }
    }
}
