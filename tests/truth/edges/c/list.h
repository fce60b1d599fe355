int list_length(const void *list);
int same(void);
