// Packages that are modules of many files, as a program uses them.
import { addMonths, differenceInDays, format, intervalToDuration } from 'date-fns';
import { Box3, Matrix4, Quaternion, Vector3 } from 'three';
import { z } from 'zod';

const start = new Date(Date.UTC(2026, 0, 31));
const later = addMonths(start, 1);
console.log(differenceInDays(later, start), format(later, 'yyyy'), intervalToDuration({ start, end: later }).days);

const turned = new Vector3(1, 2, 3).applyQuaternion(new Quaternion().setFromAxisAngle(new Vector3(0, 1, 0), Math.PI));
console.log(turned.toArray().map(Math.round), new Box3().expandByPoint(turned).applyMatrix4(new Matrix4()).isEmpty());

const Order = z.object({ id: z.number().int(), tags: z.array(z.string()).max(2), at: z.coerce.date().optional() });
const checked = Order.extend({ sum: z.string().refine(async (text) => text !== '0') });
console.log(Order.safeParse({ id: 1.5, tags: ['a', 'b', 'c'] }).error.issues.map(({ code }) => code));
console.log((await checked.safeParseAsync({ id: 1, tags: [], at: '2026-01-01', sum: '0' })).success);
