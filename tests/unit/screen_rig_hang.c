/* screen_rig_hang.c - as `kc hang --json` and `kc stack --json` printed them of a real job, shortened. */
#include "screen_rig_hang.h"

#include <check.h>

struct answer rig_hang, rig_stack;

#define HEAD(verb) "{\"schema\":\"kc." verb "/1\",\"generated_at\":\"2026-11-30T17:19:32.915Z\",\"id\":\"quickstart-2\","

static const char hang_stopped[] = HEAD("hang")
    "\"at\":null,\"found_then\":null,\"hung\":true,\"text\":\"quickstart-2 hangs: rank 3 is stopped by a signal for 12.0 s; 3 ranks wait for "
    "it in all-reduce f32 sum 1048576 of data.1 #6649\",\"ranks\":4,\"incarnation\":1,\"saved\":false,\"between_seconds\":0.25,"
    "\"verdicts\":[{\"word\":\"stopped\",\"hung\":true,\"ranks\":[3],\"layer\":\"supervisor\",\"owner\":\"operations\","
    "\"operation\":\"all-reduce f32 sum 1048576\",\"group\":\"data.1\",\"sequence\":6649,\"since_seconds\":12.0,\"victims\":3,"
    "\"text\":\"rank 3 is stopped by a signal for 12.0 s; 3 ranks wait for it in all-reduce f32 sum 1048576 of data.1 #6649\","
    "\"evidence\":[\"rank 3: step 179, phase backward, nothing of it on the board has changed for 12.0 s\","
    "\"process 4414: state T, then T 0.25 s later; its 5 threads ran 0 ms between\","
    "\"thread 4414 of rank 3, kc-rank: is stopped in futex([heap]), kernel do_signal_stop, the same in both looks\","
    "\"rank 1 stands in all-reduce f32 sum 1048576 of data.1 #6649 for 12.0 s\","
    "\"2 ranks wait for those that wait for it\"],\"next\":\"kill -CONT 4414\"}]}";

static const char hang_late[] = HEAD("hang")
    "\"at\":null,\"found_then\":null,\"hung\":false,\"text\":\"quickstart-2 does not hang: rank 3 comes later than the others\","
    "\"ranks\":4,\"incarnation\":1,\"saved\":false,\"between_seconds\":0.25,\"verdicts\":[{\"word\":\"straggler\",\"hung\":false,"
    "\"ranks\":[3],\"layer\":\"resource\",\"owner\":\"hardware\",\"operation\":\"all-reduce f32 sum 1048576\",\"group\":\"data.1\","
    "\"sequence\":6649,\"since_seconds\":0.01,\"victims\":1,\"text\":\"rank 3 comes 83 us later than the others to what all do together\","
    "\"evidence\":[\"rank 3 needs 0.46 s of its own for a step, the middle of those that do the same 0.41 s\"],"
    "\"next\":\"kc profile quickstart-2 --rank 3\"}]}";

#define PLACE "\"function\":\"kc_progress_sleep\",\"module\":\"kc-rank\",\"offset\":\"0x374c4\",\"file\":\"layers/schedule/progress.c\","  \
              "\"room\":\"schedule\",\"inlined\":false"
#define RANK(r, pid) "{\"rank\":" r ",\"pid\":" pid ",\"threads\":5,\"moved\":false,\"word\":\"stuck\",\"at\":{" PLACE "},\"text\":null}"
#define FRAME(name, file, room, line, ranks, threads, ends, states, children)                                               \
    "{\"function\":\"" name "\",\"module\":\"kc-rank\",\"offset\":\"0x1735c\",\"file\":\"" file "\",\"room\":\"" room                  \
    "\",\"inlined\":false,\"lines\":[" line "],\"ranks\":[" ranks "],\"threads\":" threads ",\"ends\":" ends                            \
    ",\"looks\":0,\"states\":[" states "],\"children\":[" children "]}"

static const char stacks[] = HEAD("stack")
    "\"looks\":3,\"seconds\":0.454317185,\"ranks\":[" RANK("0", "4411") "," RANK("1", "4412") "," RANK("2", "4413") ","
    "{\"rank\":3,\"pid\":4414,\"threads\":5,\"moved\":false,\"word\":null,\"at\":null,\"text\":\"one thread did not answer in time\"}],"
    "\"threads\":[],\"tree\":[{\"thread\":\"main\",\"lines\":[],\"ranks\":[0,1,2,3],\"threads\":4,\"ends\":0,\"looks\":0,\"states\":[],"
    "\"children\":["
    FRAME("run_rank", "layers/engine/main.c", "engine", "93", "0,1,2,3", "4", "0", "",
          FRAME("kc_executor_run", "layers/schedule/executor.c", "schedule", "370", "0,1,2,3", "4", "0", "",
                FRAME("await_all", "layers/schedule/compute.c", "schedule", "63", "0,1,2", "3", "0", "",
                      FRAME("kc_progress_sleep", "layers/schedule/progress.c", "schedule", "54", "0,1,2", "3", "3",
                            "{\"state\":\"S\",\"ranks\":[0,1,2]}", "")) ","
                FRAME("attention_backward", "jobs/kernels/cpu/attention.c", "jobs", "211", "3", "1", "1",
                      "{\"state\":\"T\",\"ranks\":[3]}", "")))
    "]},{\"thread\":\"kc-watch\",\"lines\":[],\"ranks\":[0,1,2,3],\"threads\":4,\"ends\":0,\"looks\":0,\"states\":[],\"children\":["
    FRAME("watch_keeper", "layers/engine/process.c", "engine", "180", "0,1,2,3", "4", "4",
          "{\"state\":\"S\",\"ranks\":[0,1,2]},{\"state\":\"T\",\"ranks\":[3]}", "")
    "]}]}";

static json_t *load(const char *text)
{
    json_error_t where;
    json_t *o = json_loads(text, 0, &where);
    ck_assert_msg(o != NULL, "%s at %d", where.text, where.position);
    return o;
}

void rig_hang_fill(bool hung)
{
    rig_hang_free();
    rig_hang = (struct answer){.fd = -1, .json = load(hung ? hang_stopped : hang_late), .code = hung};
    rig_stack = (struct answer){.fd = -1, .json = load(stacks)};
}

void rig_hang_free(void)
{
    json_decref(rig_hang.json);
    json_decref(rig_stack.json);
    rig_hang = rig_stack = (struct answer){.fd = -1};
}
