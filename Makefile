# Kuangchao. `make quickstart` trains a model; `make check` runs every test; `make` builds; see README.md.
# CONFIG: release (default), asan, tsan. STRICT=1 turns warnings into errors. V=1 shows the commands.
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DEFAULT_GOAL := all
SHELL := /bin/bash

CONFIG ?= release
CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
PREFIX ?= /usr/local
B := build/$(CONFIG)
Q := $(if $(V),,@)

# ---- what is there -------------------------------------------------------------------------------------------------
hash := \#
have_header = $(shell printf '$(hash)include <$(1)>\n' | $(CC) -E -xc - >/dev/null 2>&1 && echo yes)
HAVE_DNNL   := $(call have_header,dnnl.h)
HAVE_HWLOC  := $(call have_header,hwloc.h)
HAVE_CHECK  := $(call have_header,check.h)
ARCH := $(shell $(CC) -dumpmachine 2>/dev/null | cut -d- -f1)

DEFINES := -D_GNU_SOURCE $(if $(HAVE_DNNL),-DKC_HAVE_DNNL)
WARN := -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 -Wno-format-nonliteral
OPT_release := -O2 -g
OPT_asan := -O1 -g -fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined
OPT_tsan := -O1 -g -fsanitize=thread
CFLAGS := -std=gnu11 $(WARN) $(if $(STRICT),-Werror) $(OPT_$(CONFIG)) -ffp-contract=off -fno-math-errno -pthread $(DEFINES) \
          -include layers/base/banned.h $(EXTRA_CFLAGS)
LDFLAGS := $(OPT_$(CONFIG)) -pthread
LIBS_BASE := -ljansson -lxxhash -lm -ldl
LIBS := $(if $(HAVE_DNNL),-ldnnl) -lhwloc -lutf8proc -lzstd $(LIBS_BASE)
LIBS_CONSOLE := -lncursesw -ltinfo -ldw -lelf

# ---- rooms: a folder is an archive; main.c of a program stays outside its archive ------------------------------------
LAYERS := resource comm strategy schedule state govern
ROOMS := base contracts $(LAYERS) trace drill engine boundary shm supervisor console jobs
dir_of = $(if $(filter shm supervisor console jobs,$(1)),$(1),layers/$(1))
sources_of = $(filter-out %/main.c,$(shell find $(call dir_of,$(1)) -name '*.c' | sort))

# A room sees only the headers that layers/boundary.json lets it include: build/include/<room> is a farm of links to them.
FARM := build/include/.farm
room = $(if $(filter layers/%,$<),$(word 2,$(subst /, ,$<)),$(firstword $(subst /, ,$<)))
INCLUDES = $(if $(filter tests,$(room)),-Ilayers -I. -Ibuild/include/engine,-Ibuild/include/$(room))
FARM_SOURCES := $(wildcard layers/boundary/*.c layers/boundary/farm/*.c) $(wildcard layers/base/*.c)
build/tools/kc-farm: $(FARM_SOURCES) $(wildcard layers/boundary/*.h layers/base/*.h)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -O1 -D_GNU_SOURCE -include layers/base/banned.h -Ilayers -I. $(FARM_SOURCES) -o $@ -ldw -lelf $(LIBS_BASE)
.PHONY: $(FARM)
$(FARM): build/tools/kc-farm
	$(Q)build/tools/kc-farm . build/include

define room_rules
OBJ_$(1) := $$(patsubst %.c,$(B)/%.o,$$(call sources_of,$(1)))
$(B)/lib$(1).a: $$(OBJ_$(1))
	$(Q)rm -f $$@ && ar rcsD $$@ $$^
endef
$(foreach r,$(ROOMS),$(eval $(call room_rules,$(r))))
archives = $(foreach r,$(1),$(B)/lib$(r).a)

# vector variants are files of their own, chosen at run time
FLAGS_VARIANT = $(if $(filter x86_64,$(ARCH)),$(if $(findstring _avx2.,$<),-mavx2 -mfma) \
  $(if $(findstring _avx512.,$<),-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma))

$(B)/%.o: %.c Makefile | $(FARM)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(FLAGS_VARIANT) $(INCLUDES) -MMD -MP -c $< -o $@

RANK_ROOMS := engine trace drill govern schedule strategy state comm resource jobs shm contracts base
KCD_ROOMS := supervisor govern resource shm contracts base
KC_ROOMS := console boundary govern comm strategy schedule state jobs resource shm contracts base
link = $(Q)$(CC) $(LDFLAGS) -o $@ $(1) -Wl,--start-group $(2) -Wl,--end-group $(3)

ifeq ($(CONFIG),release)
BIN := bin
else
BIN := $(B)/bin
endif
$(BIN)/kc-rank: $(B)/layers/engine/main.o $(call archives,$(RANK_ROOMS))
	@mkdir -p $(@D)
	$(call link,$<,$(call archives,$(RANK_ROOMS)),$(LIBS))
$(BIN)/kcd: $(B)/supervisor/main.o $(call archives,$(KCD_ROOMS))
	@mkdir -p $(@D)
	$(call link,$<,$(call archives,$(KCD_ROOMS)),-lhwloc -lzstd $(LIBS_BASE))
$(BIN)/kc: $(B)/console/main.o $(call archives,$(KC_ROOMS))
	@mkdir -p $(@D)
	$(call link,$<,$(call archives,$(KC_ROOMS)),$(LIBS) $(LIBS_CONSOLE))

.PHONY: all found check deps drills faults torture layouts bench bench-peers boundary man install clean quickstart unit sanitized pictures fuzz
all: found $(BIN)/kc-rank $(BIN)/kcd $(BIN)/kc

# What was found, and what is therefore left out. NVML is looked for when a program runs, not here.
HAVE_CUDA := $(shell command -v nvcc 2>/dev/null)
HAVE_NCCL := $(call have_header,nccl.h)
REQUIRED := jansson.h xxhash.h zstd.h hwloc.h utf8proc.h curses.h libelf.h elfutils/libdw.h
MISSING := $(strip $(foreach h,$(REQUIRED),$(if $(call have_header,$(h)),,$(h))))
found:
	@$(if $(MISSING),echo "missing headers: $(MISSING); run \`make deps\`" >&2; exit 1,:)
	@echo "compiler  $(shell $(CC) --version | head -n 1)"
	@echo "oneDNN    $(if $(HAVE_DNNL),yes,no: matrix products run on the portable kernel)"
	@echo "hwloc     yes"
	@echo "CUDA      $(if $(HAVE_CUDA),found$(comma) not used by this version: ranks run on CPU cores,no: ranks run on CPU cores)"
	@echo "NCCL      $(if $(HAVE_NCCL),found$(comma) not used by this version: ranks talk through shared memory,no: ranks talk through shared memory)"
	@echo "Check     $(if $(HAVE_CHECK),yes,no: unit tests cannot be built; run \`make deps\`)"
comma := ,

deps:
	@tools/deps

quickstart: deps
	@$(MAKE) -s -j$(shell nproc) all
	@tools/quickstart

check: deps
	@$(MAKE) -s -j$(shell nproc) all unit STRICT=1
	@$(MAKE) -s -j$(shell nproc) sanitized STRICT=1
	@tests/run

# every layout of the table of tests/flow/test_layouts.py against one rank; `make check` runs the short form
layouts: all
	@/usr/bin/python3 tests/flow/test_layouts.py test_the_table_is_what_it_says test_all test_random

# which tests and drills hold which row of tests/cases/faults.md; 1 if nothing holds one. `make check` runs it, too
faults:
	@tests/check/faults --table

# faults on purpose, and what becomes of them: all of jobs/drills.json; `make check` runs some
drills: all
	@bin/kc drill

# snapshots under every fault and power cut, for minutes; the unit tests have a short form
torture: all $(B)/tests/test_torture
	@$(B)/tests/test_torture long

# keys, sizes and saved boards at random, sanitizers on, for minutes; the unit tests have a short form
FUZZ := test_screen_fuzz test_layout test_board_fuzz
fuzz:
	@$(MAKE) -s CONFIG=asan $(addprefix build/asan/tests/,$(FUZZ))
	@for t in $(FUZZ); do build/asan/tests/$$t long || exit 1; done

boundary: all
	@bin/kc boundary check

# tables of man/kc.1 from kc's own; tests/check/manual says when they are others
man: all
	@tools/man

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man5 \
	  $(DESTDIR)$(PREFIX)/share/man/man8 $(DESTDIR)$(PREFIX)/share/kuangchao
	KC_HOME=/nowhere bin/kc schema --out $(DESTDIR)$(PREFIX)/share/kuangchao/schema
	install -m 755 bin/kc bin/kcd bin/kc-rank $(DESTDIR)$(PREFIX)/bin
	for n in 1 5 8; do install -m 644 man/*.$$n $(DESTDIR)$(PREFIX)/share/man/man$$n; done
	install -m 644 jobs/job.schema.json jobs/drills.json jobs/examples/*.json $(DESTDIR)$(PREFIX)/share/kuangchao

# ---- tests: tests/unit/test_NAME.c is a program over all archives (console and boundary included) --------------------
UNIT := $(patsubst tests/unit/%.c,%,$(wildcard tests/unit/test_*.c))
TEST_ROOMS := console boundary supervisor $(RANK_ROOMS)
TEST_SUPPORT := $(patsubst %.c,$(B)/%.o,$(filter-out tests/unit/test_%.c,$(wildcard tests/unit/*.c)))
$(B)/tests/%: $(B)/tests/unit/%.o $(TEST_SUPPORT) $(call archives,$(TEST_ROOMS))
	@mkdir -p $(@D)
	$(call link,-Wl$(comma)--wrap=_mark_point $< $(TEST_SUPPORT),$(call archives,$(TEST_ROOMS)),$(LIBS) $(LIBS_CONSOLE) $(shell pkg-config --libs check))
# tests/tools/NAME.c: programs that tests start
TOOLS := $(patsubst tests/tools/%.c,%,$(wildcard tests/tools/*.c))
$(addprefix $(B)/tests/,$(TOOLS)): $(B)/tests/%: $(B)/tests/tools/%.o $(addprefix $(B)/tests/unit/,board_make.o board_make_ranks.o board_home.o) \
                                   $(call archives,shm contracts base)
	@mkdir -p $(@D)
	$(call link,$(filter %.o,$^),$(call archives,shm contracts base),-lzstd $(LIBS_BASE))
unit: $(addprefix $(B)/tests/,$(UNIT) $(TOOLS))
.SECONDARY:
# the pictures of README, from the golden screens; a new one begins as an empty man/pictures/NAME.svg
SCREENS := $(filter test_view_% test_console_screen test_layout,$(UNIT))
pictures: $(addprefix $(B)/tests/,$(SCREENS))
	@for t in $(SCREENS); do KC_GOLDEN=pictures $(B)/tests/$$t >/dev/null || exit 1; done; ls man/pictures
# everything under ASan+UBSan; what threads share under TSan
TSAN_TESTS := $(filter test_comm% test_shm% test_storage% test_background%,$(UNIT))
sanitized:
	@$(MAKE) -s CONFIG=asan unit
	@$(MAKE) -s CONFIG=tsan $(addprefix build/tsan/tests/,$(TSAN_TESTS))

# tests/bench/bench_NAME.c: figures, never verdicts
BENCHES := $(patsubst tests/bench/%.c,%,$(wildcard tests/bench/bench_*.c))
$(B)/bench/%: $(B)/tests/bench/%.o $(call archives,$(TEST_ROOMS))
	@mkdir -p $(@D)
	$(call link,$<,$(call archives,$(TEST_ROOMS)),$(LIBS) $(LIBS_CONSOLE))
SHARE := $(if $(filter 1,$(shell nproc)),--oversubscribe)
# what we are compared with: tests/bench/compare_comm runs both
bench-peers: $(B)/bench/ours_comm
	@if command -v mpicc >/dev/null; then mpicc -O2 tests/bench/peer_mpi.c -o $(B)/bench/peer_mpi; \
	 else echo "peer_mpi  not built: no mpicc (apt install libopenmpi-dev openmpi-bin)"; fi
bench: all $(addprefix $(B)/bench/,$(BENCHES)) $(B)/tests/kc-board-make
	@for b in $(BENCHES); do echo "== $$b"; $(B)/bench/$$b || exit 1; done
	@for m in 0.84m 10.8m 124m; do echo "== kc bench step --model $$m"; \
	  bin/kc bench step --model $$m --steps $$([ $$m = 124m ] && echo 6 || echo 22) $(SHARE) || exit 1; done
	@echo "== kc bench comm"; bin/kc bench comm $(SHARE)
	@echo "== kc bench snapshot"; bin/kc bench snapshot $(SHARE)
	@echo "== screen_cost"; tests/bench/screen_cost --seconds 4

clean:
	rm -rf build bin

-include $(shell find $(B) -name '*.d' 2>/dev/null)
