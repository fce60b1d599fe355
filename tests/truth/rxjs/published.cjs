// The program of src/app.ts, with RxJS as it is published.
const { BehaviorSubject, combineLatest, concat, defer, from, interval, of, range, Subject, throwError, timer, zip } = require('rxjs');
const ops = require('rxjs/operators');

const done = (name) => ({ next() {}, error: (error) => console.log(name, String(error)), complete: () => console.log(name) });

range(1, 20).pipe(ops.map((n) => n * 2), ops.filter((n) => n % 3 === 0), ops.scan((a, b) => a + b, 0), ops.take(3), ops.toArray()).subscribe(done('range'));
from([1, 2, 3]).pipe(ops.mergeMap((n) => of(n, n + 1)), ops.distinct(), ops.reduce((a, b) => a + b)).subscribe(done('merge'));
const subject = new Subject();
subject.pipe(ops.debounceTime(1), ops.switchMap((n) => timer(1).pipe(ops.mapTo(n)))).subscribe(done('switch'));
subject.next(1);
subject.next(2);
setTimeout(() => subject.complete(), 10);
const state = new BehaviorSubject(0);
combineLatest([state, of(1)]).pipe(ops.bufferCount(2), ops.share()).subscribe(done('combine'));
state.next(1);
state.next(2);
state.complete();
concat(of(1), throwError(() => new Error('x'))).pipe(ops.retry(1), ops.catchError(() => of(3)), ops.finalize(() => {})).subscribe(done('retry'));
zip(of(1, 2), defer(() => from([3, 4]))).pipe(ops.groupBy(([a]) => a), ops.concatMap((group) => group.pipe(ops.toArray()))).subscribe(done('zip'));
interval(1).pipe(ops.takeUntil(timer(8)), ops.throttleTime(2), ops.pairwise(), ops.withLatestFrom(of(1)), ops.timeout(100)).subscribe(done('interval'));
