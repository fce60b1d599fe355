#include <stdio.h>
#include "list.h"
static int helper(int n) { return n + 1; } //: helper
static int twice(int n) { return helper(helper(n)); } //: twice = helper
int apply(int (*f)(int), int n) { return f(n); } //: apply = twice shadow
int shadow(int n) { return n; } //: shadow
static int uses_a_parameter(int (*helper)(int)) { //: uses_a_parameter
    return helper(1); //= twice
}
static int uses_a_local(void) { //: uses_a_local
    int (*twice)(int) = shadow;
    return twice(3); //= shadow
}
#define CALL(f, n) f(n)
#define TWICE(n) twice(n)
static int through_macros(void) { //: through_macros
    return CALL(helper, 1) + TWICE(2); //= helper twice
}
typedef int (*step)(int);
static const step table[] = {helper, twice};
struct ops { int (*run)(int); };
static int recursive(int n) { return n ? recursive(n - 1) : 0; } //: recursive = recursive
static inline int inlined(int n) { return n; } //: inlined
int main(void) { //: main
    struct ops ops = {shadow};
    int sum = apply(twice, 1) + apply(shadow, 1); //= apply
    sum += uses_a_parameter(twice); //= uses_a_parameter
    sum += uses_a_local(); //= uses_a_local
    sum += through_macros(); //= through_macros
    sum += table[sum & 1](2); //= helper twice
    sum += ops.run(3); //= shadow
    sum += recursive(2) + inlined(1); //= recursive inlined
    sum += list_length(0) + same(); //= list_length same_main
    if (sum) printf("%d\n", sum);
    return (helper)(sum); //= helper
}
int same(void) { return 2; } //: same_main
