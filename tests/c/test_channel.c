/* link: pair */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

static void
test_a_message_arrives(void **state)
{
    pair *p      = *state;
    char  out[8] = "1234567";
    char  in[16] = {0};
    op    recv_op;

    pair_open(p);
    op_recv(&recv_op, p->server, 0, pair_any, in, sizeof(in));
    assert_true(pair_send(p, p->client, 0, pair_tag(7), out, 8) >= 0);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(recv_op.info.length, 8);
    assert_int_equal(recv_op.info.tag, 7);
    assert_false(recv_op.info.is_untagged);
    assert_memory_equal(in, out, 8);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_a_message_arrives),
    };

    return UNIT_RUN(tests);
}
