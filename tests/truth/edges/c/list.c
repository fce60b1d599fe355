#include "list.h"
static int helper(int n) { return n - 1; } //: list_helper
static int same_name(void) { return 1; } //: list_same_name
int list_length(const void *list) { //: list_length
    return list ? helper(1) : same_name() + same(); //= list_helper list_same_name same_main
}
