/* Scopes a native function from C, and shows its trace. */
#include <stdio.h>
#include <stdlib.h>

#include "scalpel_scope.h"

static long triple(long value) {
  volatile long sum = 0;
  for (int turn = 0; turn < 3; turn++) sum = sum + value;
  return sum;
}

int main(void) {
  struct scalpel_scope_request request = {0};
  struct scalpel_trace_info info = {0};
  struct scalpel_trace *trace = NULL;
  const char *text = "";
  uint64_t scope = 0;

  request.size = sizeof request;
  info.size = sizeof info;
  request.form = SCALPEL_SCOPE_FORM_REGION;
  request.emit = SCALPEL_SCOPE_EMIT_OFF;
  request.file = __FILE__;
  request.line = __LINE__;
  if (scalpel_scope_function((scalpel_function)triple, &request.start, &request.end) != SCALPEL_SCOPE_OK)
    return EXIT_FAILURE;
  if (scalpel_scope_open(&request, &scope) != SCALPEL_SCOPE_OK) return EXIT_FAILURE;
  long result = triple(14);
  int32_t code = scalpel_scope_close(scope, SCALPEL_SCOPE_END_CLOSE, &trace);
  if (code != SCALPEL_SCOPE_OK) {
    fprintf(stderr, "%s\n", scalpel_scope_error(code));
    return EXIT_FAILURE;
  }
  scalpel_trace_get_info(trace, &info);
  scalpel_trace_text(trace, SCALPEL_TRACE_FULL, SCALPEL_SYNTAX_INTEL, 0, &text, NULL);
  printf("%ld, %s\n%s", result, info.complete ? "complete" : info.reasons_text, text);
  scalpel_trace_free(trace);
  return info.complete ? EXIT_SUCCESS : EXIT_FAILURE;
}
