//! What became of each function that exists: it ran, it never ran, that is not known, or it is not in this build.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::catalog::{
    Absence, Blindness, DefId, Definition, FileId, Kind, Matches, Outcome, PieceKind, State, Why,
};
use crate::event::FuncId;
use crate::function::{ExitStrategy, FunctionInfo, Language};
use crate::genome::Genome;
use crate::genome::totals::Total;

use super::compiled::{self, Covered, Text};
use super::hidden::Hidden;
use super::index::Index;
use super::is_text;

/// A definition's state, and what it is in the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefState {
    /// State.
    pub state: State,
    /// The functions of the run that it is: more than one where a bundle has it twice, or in several builds.
    pub functions: Vec<FuncId>,
}

/// Of each definition, by its number.
pub(super) fn states(
    genome: &Genome,
    index: &Index<'_>,
    matches: &Matches,
    outcomes: &[Outcome],
    totals: &[Total],
) -> Vec<DefState> {
    let run = Run::of(genome, index, matches, outcomes, totals);
    let catalog = index.catalog;
    let mut states: Vec<DefState> = catalog
        .numbered()
        .map(|(id, definition)| DefState {
            state: run.of_definition(id, definition),
            functions: run.functions.get(&id).cloned().unwrap_or_default(),
        })
        .collect();
    for (source, code) in run.compiled() {
        let state = code.state(&states);
        if let Some(known) = states.get_mut(source.index()) {
            known.functions = code.functions(&run);
            known.state = state;
        }
    }
    states
}

struct Run<'a> {
    index: &'a Index<'a>,
    matches: &'a Matches,
    functions: FxHashMap<DefId, Vec<FuncId>>,
    ran: FxHashSet<FuncId>,
    watched: FxHashSet<FuncId>,
    bounded: FxHashSet<FuncId>,
    /// Languages with a probe of their own in the program.
    languages: FxHashSet<Language>,
    /// Files of which something ran that could not be told.
    edited: FxHashSet<FileId>,
    doubted: FxHashSet<FileId>,
    hidden: Hidden,
    any_image: bool,
}

impl<'a> Run<'a> {
    fn of(
        genome: &Genome,
        index: &'a Index<'a>,
        matches: &'a Matches,
        outcomes: &[Outcome],
        totals: &[Total],
    ) -> Self {
        // What was lost of a function says that it was called.
        let lost = genome.losses.iter().filter(|loss| loss.count > 0);
        let mut run = Self {
            index,
            matches,
            functions: FxHashMap::default(),
            ran: lost.filter_map(|loss| loss.func).collect(),
            watched: FxHashSet::default(),
            bounded: genome.bounds.iter().map(|bound| bound.func).collect(),
            languages: FxHashSet::default(),
            edited: FxHashSet::default(),
            doubted: FxHashSet::default(),
            hidden: Hidden::of(genome, index),
            any_image: index
                .catalog
                .files
                .iter()
                .any(|file| file.language == Language::Native),
        };
        let functions = genome.functions.iter();
        for (((id, info), outcome), total) in functions.zip(outcomes).zip(totals) {
            run.add(id, info, *outcome, total);
        }
        run
    }

    fn add(&mut self, id: FuncId, info: &FunctionInfo, outcome: Outcome, total: &Total) {
        if total.contexts > 0 {
            self.ran.insert(id);
        }
        if info.exit != ExitStrategy::None && !self.bounded.contains(&id) {
            self.watched.insert(id);
        }
        if info.exit == ExitStrategy::Probe {
            self.languages.insert(info.language);
        }
        match outcome {
            Outcome::Matched(definition) => {
                self.functions.entry(definition).or_default().push(id);
            }
            Outcome::Unmatched(Why::Edited) => self.edited.extend(self.index.file_at(&info.path)),
            Outcome::Unmatched(Why::NotFound) if is_text(info.language, info) => {
                self.doubted.extend(self.index.file_at(&info.path));
            }
            Outcome::Unmatched(_) => {}
        }
    }

    fn of_definition(&self, id: DefId, definition: &Definition) -> State {
        let file = self.index.catalog.file(definition.file);
        match self.seen(id, definition) {
            State::NeverRan => file
                .and_then(|file| self.hidden.why(self.index.catalog, definition.file, file))
                .map_or(State::NeverRan, State::NotVisible),
            state => state,
        }
    }

    /// As far as what was seen tells.
    fn seen(&self, id: DefId, definition: &Definition) -> State {
        if let Some(functions) = self.functions.get(&id) {
            return self.of_functions(functions);
        }
        if definition.native.is_some() {
            return State::NotVisible(Blindness::Excluded);
        }
        let file = self.index.catalog.file(definition.file);
        self.unseen(
            definition,
            file.map_or(Language::Native, |file| file.language),
            id,
        )
    }

    fn of_functions(&self, functions: &[FuncId]) -> State {
        if functions.iter().any(|id| self.ran.contains(id)) {
            State::Ran
        } else if functions.iter().all(|id| self.watched.contains(id)) {
            State::NeverRan
        } else if functions.iter().any(|id| self.bounded.contains(id)) {
            State::NotVisible(Blindness::Excluded)
        } else {
            State::NotVisible(Blindness::SamplesOnly)
        }
    }

    /// Nothing in the run is it.
    fn unseen(&self, definition: &Definition, language: Language, id: DefId) -> State {
        let blind = |why| State::NotVisible(why);
        if !self.languages.contains(&language) {
            return blind(Blindness::NoProbe);
        }
        if self.edited.contains(&definition.file) {
            return blind(Blindness::Edited);
        }
        if definition.flags.doubtful {
            return blind(Blindness::Doubtful);
        }
        if is_blind_spot(definition, language) {
            return blind(Blindness::BlindSpot);
        }
        if self.doubted.contains(&definition.file) || self.matches.maybe.contains(&id) {
            return blind(Blindness::Ambiguous);
        }
        let matches = self.matches;
        if matches.bundled.contains(&definition.file) && !matches.built.contains(&id) {
            if matches.folded.contains(&id) {
                return blind(Blindness::Inlined);
            }
            return State::NotInBuild(Absence::NoText);
        }
        State::NeverRan
    }

    /// Definitions of sources that are compiled, with the code that executables have of them.
    fn compiled(&self) -> Vec<(DefId, Code)> {
        let catalog = self.index.catalog;
        let mut codes: FxHashMap<DefId, Code> = FxHashMap::default();
        for (id, definition) in catalog.numbered() {
            match compiled::text_of(self.index, definition) {
                Text::One(source) => codes.entry(source).or_default().own.push(id),
                Text::OneOf(sources) => sources
                    .into_iter()
                    .for_each(|source| codes.entry(source).or_default().maybe = true),
                Text::None => {}
            }
        }
        let inlined = catalog
            .pieces
            .iter()
            .filter(|piece| piece.kind == PieceKind::Inlined);
        for piece in inlined {
            let of = catalog.definition(piece.of);
            match of.map(|of| compiled::text_of(self.index, of)) {
                Some(Text::One(source)) => codes.entry(source).or_default().inlined = true,
                Some(Text::OneOf(sources)) => sources
                    .into_iter()
                    .for_each(|source| codes.entry(source).or_default().maybe = true),
                Some(Text::None) | None => {}
            }
        }
        let is_compiled = |definition: &Definition| {
            let file = catalog.file(definition.file);
            file.is_some_and(|file| is_compiled(file.language))
        };
        let covered = Covered::of(self.index);
        let mut absence: FxHashMap<FileId, State> = FxHashMap::default();
        let mut absent = |file| {
            *absence.entry(file).or_insert_with(|| match self.any_image {
                false => State::NotVisible(Blindness::NoExecutable),
                true if covered.can_tell(self.index, file) => State::NotInBuild(Absence::NoCode),
                true => State::NotVisible(Blindness::NoLines),
            })
        };
        let all = catalog
            .numbered()
            .filter(|(_, definition)| is_compiled(definition));
        all.filter(|(id, _)| !self.functions.contains_key(id))
            .map(|(id, definition)| {
                let mut code = codes.remove(&id).unwrap_or_default();
                code.absent = Some(absent(definition.file));
                (id, code)
            })
            .collect()
    }
}

/// What executables have of a function of a source.
#[derive(Debug, Default)]
struct Code {
    own: Vec<DefId>,
    inlined: bool,
    /// Code of this or of another one.
    maybe: bool,
    /// What it is if there is no code of it.
    absent: Option<State>,
}

impl Code {
    fn state(&self, states: &[DefState]) -> State {
        let of = |id: &DefId| states.get(id.index()).map(|known| known.state);
        let all: Vec<State> = self.own.iter().filter_map(of).collect();
        if all.contains(&State::Ran) {
            return State::Ran;
        }
        if self.inlined {
            return State::NotVisible(Blindness::Inlined);
        }
        if self.maybe {
            return State::NotVisible(Blindness::Ambiguous);
        }
        let blind = all.iter().find(|state| **state != State::NeverRan);
        match (all.is_empty(), blind) {
            (false, Some(state)) => *state,
            (false, None) => State::NeverRan,
            (true, _) => {
                let no_executable = State::NotVisible(Blindness::NoExecutable);
                self.absent.unwrap_or(no_executable)
            }
        }
    }

    fn functions(&self, run: &Run<'_>) -> Vec<FuncId> {
        let of = |id: &DefId| run.functions.get(id).cloned().unwrap_or_default();
        self.own.iter().flat_map(of).collect()
    }
}

pub(super) const fn is_compiled(language: Language) -> bool {
    matches!(
        language,
        Language::C | Language::Cpp | Language::Rust | Language::Go | Language::Zig
    )
}

/// What the probes' own pages say that they cannot see.
fn is_blind_spot(definition: &Definition, language: Language) -> bool {
    match language {
        Language::JavaScript => matches!(
            definition.kind,
            Kind::StaticBlock
                | Kind::FieldInitialiser
                | Kind::ImplicitConstructor
                | Kind::Class
                | Kind::Enum
                | Kind::Namespace
                | Kind::Module
        ),
        // From 3.12 on they are part of the function around them.
        Language::Python => definition.kind == Kind::Comprehension,
        _ => false,
    }
}
