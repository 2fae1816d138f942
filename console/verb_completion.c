/* verb_completion.c - what a shell completes, made of the tables of verbs and options, so it cannot differ from them. Job ids
 * are asked of kc itself while one types. */
#include "complete.h"
#include "session.h"
#include "verbs.h"

#include "supervisor/protocol.h"

#include <stdlib.h>
#include <string.h>

static const char *const subject_name[] = {[SUBJECT_OTHER] = "", [SUBJECT_JOB] = "jobs", [SUBJECT_FILE] = "files",
                                           [SUBJECT_VERB] = "verbs", [SUBJECT_SHELL] = "shells"};

/* "snap ls" → "snap" and "ls"; a verb of one word has no second. */
static const char *second_word(const char *verb)
{
    const char *space = strchr(verb, ' ');
    return space ? space + 1 : "";
}

static int first_length(const char *verb)
{
    return (int)strcspn(verb, " ");
}

/* Is it the first verb of its first word? */
static bool opens_group(size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (first_length(commands[k].verb) == first_length(commands[i].verb) &&
            !strncmp(commands[k].verb, commands[i].verb, (size_t)first_length(commands[i].verb)))
            return false;
    return true;
}

/* Is it the first verb of two words of its first word? `node` alone is a verb, too. */
static bool opens_pairs(size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (*second_word(commands[k].verb) && first_length(commands[k].verb) == first_length(commands[i].verb) &&
            !strncmp(commands[k].verb, commands[i].verb, (size_t)first_length(commands[i].verb)))
            return false;
    return *second_word(commands[i].verb) != 0;
}

/* ---- bash ------------------------------------------------------------------------------------------------------ */

static void bash_words(FILE *out)
{
    fprintf(out, "  local first='");
    for (size_t i = 0; i < commands_count; i++)
        if (opens_group(i))
            fprintf(out, "%s%.*s", i ? " " : "", first_length(commands[i].verb), commands[i].verb);
    fprintf(out, "'\n  case \"$verb\" in\n");
    for (size_t i = 0; i < commands_count; i++) {
        if (!opens_pairs(i))
            continue;
        fprintf(out, "    %.*s) second='", first_length(commands[i].verb), commands[i].verb);
        for (size_t k = i; k < commands_count; k++)
            if (!strncmp(commands[k].verb, commands[i].verb, (size_t)first_length(commands[i].verb) + 1))
                fprintf(out, "%s%s", k > i ? " " : "", second_word(commands[k].verb));
        fprintf(out, "' ;;\n");
    }
    fprintf(out, "  esac\n");
}

static void bash_options(FILE *out)
{
    fprintf(out, "  case \"$verb${two:+ $two}\" in\n");
    for (size_t i = 0; i < commands_count; i++) {
        const struct command *c = &commands[i];
        fprintf(out, "    '%s') subject='%s' options='", c->verb, subject_name[subject_of(c)]);
        for (int o = 0, n = 0; o < OPTIONS; o++)
            if (c->options & OPT_BIT(o))
                fprintf(out, "%s--%s", n++ ? " " : "", option_rows[o].name);
        fprintf(out, "' ;;\n");
    }
    fprintf(out, "  esac\n");
}

static void print_bash(FILE *out)
{
    fprintf(out, "# bash completion of kc: source <(kc completion bash)\n"
                 "_kc() {\n"
                 "  local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} two='' second='' subject='' options='' at=2\n");
    bash_words(out);
    fprintf(out, "  if ((COMP_CWORD == 1)); then COMPREPLY=($(compgen -W \"$first\" -- \"$word\")); return; fi\n"
                 "  if [[ -n $second ]]; then\n"
                 "    if ((COMP_CWORD == 2)) && [[ $word != -* ]]; then COMPREPLY=($(compgen -W \"$second\" -- \"$word\")); return; fi\n"
                 "    if [[ \" $second \" == *\" ${COMP_WORDS[2]} \"* ]]; then two=${COMP_WORDS[2]} at=3; fi\n"
                 "  fi\n");
    bash_options(out);
    fprintf(out, "  if [[ $word == -* ]]; then COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
                 "  elif [[ $subject == jobs ]] && ((COMP_CWORD == at)); then\n"
                 "    COMPREPLY=($(compgen -W \"$(kc ps --plain --cols id 2>/dev/null)\" -- \"$word\"))\n"
                 "    ((${#COMPREPLY[@]})) || COMPREPLY=($(compgen -f -- \"$word\"))\n"
                 "  elif [[ $subject == verbs ]]; then COMPREPLY=($(compgen -W \"$first\" -- \"$word\"))\n"
                 "  elif [[ $subject == shells ]]; then COMPREPLY=($(compgen -W '" COMPLETE_SHELLS "' -- \"$word\"))\n"
                 "  else COMPREPLY=($(compgen -f -- \"$word\")); fi\n"
                 "}\n"
                 "complete -o filenames -F _kc kc\n");
}

/* ---- zsh, fish ------------------------------------------------------------------------------------------------- */

/* A text between single quotes; in both shells a quote itself leaves and enters them. `colon`: zsh's lists need it hidden. */
static void quoted(FILE *out, const char *text, bool colon)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", out);
        else if (colon && (*text == ':' || *text == '[' || *text == ']'))
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
}

static void zsh_verbs(FILE *out)
{
    fprintf(out, "  local -a first second options\n  first=(");
    for (size_t i = 0; i < commands_count; i++) {
        if (!opens_group(i))
            continue;
        fprintf(out, "'%.*s", first_length(commands[i].verb), commands[i].verb);
        if (!*second_word(commands[i].verb)) {
            fputc(':', out);
            quoted(out, commands[i].summary, true);
        }
        fprintf(out, "' ");
    }
    fprintf(out, ")\n  case $words[2] in\n");
    for (size_t i = 0; i < commands_count; i++) {
        if (!opens_pairs(i))
            continue;
        fprintf(out, "    %.*s) second=(", first_length(commands[i].verb), commands[i].verb);
        for (size_t k = i; k < commands_count; k++)
            if (!strncmp(commands[k].verb, commands[i].verb, (size_t)first_length(commands[i].verb) + 1)) {
                fprintf(out, "'%s:", second_word(commands[k].verb));
                quoted(out, commands[k].summary, true);
                fprintf(out, "' ");
            }
        fprintf(out, ");;\n");
    }
    fprintf(out, "  esac\n");
}

static void zsh_options(FILE *out)
{
    fprintf(out, "  case $verb in\n");
    for (size_t i = 0; i < commands_count; i++) {
        const struct command *c = &commands[i];
        fprintf(out, "    '%s') subject='%s' options=(", c->verb, subject_name[subject_of(c)]);
        for (int o = 0; o < OPTIONS; o++)
            if (c->options & OPT_BIT(o)) {
                fprintf(out, "'--%s:", option_rows[o].name);
                quoted(out, option_rows[o].help, true);
                fprintf(out, "' ");
            }
        fprintf(out, ");;\n");
    }
    fprintf(out, "  esac\n");
}

static void print_zsh(FILE *out)
{
    fprintf(out, "#compdef kc\n# zsh completion of kc: kc completion zsh >~/.zfunc/_kc\n_kc() {\n  local verb=$words[2] subject='' at=3\n");
    zsh_verbs(out);
    fprintf(out, "  if ((CURRENT == 2)); then _describe verb first; return; fi\n"
                 "  if (($#second)); then\n"
                 "    if ((CURRENT == 3)) && [[ $PREFIX != -* ]]; then _describe verb second; return; fi\n"
                 "    if ((${second[(I)${words[3]}:*]})); then verb=\"$words[2] $words[3]\" at=4; fi\n"
                 "  fi\n");
    zsh_options(out);
    fprintf(out, "  if [[ $PREFIX == -* ]]; then _describe option options\n"
                 "  elif [[ $subject == jobs ]] && ((CURRENT == at)); then\n"
                 "    compadd -- ${(f)\"$(kc ps --plain --cols id 2>/dev/null)\"} || _files\n"
                 "  elif [[ $subject == verbs ]]; then _describe verb first\n"
                 "  elif [[ $subject == shells ]]; then compadd -- " COMPLETE_SHELLS "\n"
                 "  else _files; fi\n"
                 "}\n"
                 "_kc \"$@\"\n");
}

static void print_fish(FILE *out)
{
    fprintf(out, "# fish completion of kc: kc completion fish >~/.config/fish/completions/kc.fish\n"
                 "function __kc_is\n"
                 "  set -l words (commandline -opc)\n"
                 "  set -l last (math 1 + (count $argv))\n" /* between quotes fish runs nothing */
                 "  test (count $words) -ge $last; and test \"$words[2..$last]\" = \"$argv\"\n"
                 "end\n");
    for (size_t i = 0; i < commands_count; i++) {
        const struct command *c = &commands[i];
        const char *second = second_word(c->verb);
        fprintf(out, "complete -c kc -n '%s%.*s' -%s -a '%s' -d '", *second ? "__kc_is " : "__fish_use_subcommand",
                *second ? first_length(c->verb) : 0, c->verb, "f", *second ? second : c->verb);
        quoted(out, c->summary, false);
        fprintf(out, "'\n");
        if (*second && opens_group(i))
            fprintf(out, "complete -c kc -n __fish_use_subcommand -f -a %.*s\n", first_length(c->verb), c->verb);
        if (subject_of(c) == SUBJECT_JOB)
            fprintf(out, "complete -c kc -n '__kc_is %s' -a '(kc ps --plain --cols id 2>/dev/null)'\n", c->verb);
        if (subject_of(c) == SUBJECT_VERB)
            fprintf(out, "complete -c kc -n '__kc_is %s' -f -a '(complete -C \"kc \")'\n", c->verb);
        if (subject_of(c) == SUBJECT_SHELL)
            fprintf(out, "complete -c kc -n '__kc_is %s' -f -a '" COMPLETE_SHELLS "'\n", c->verb);
        for (int o = 0; o < OPTIONS; o++) {
            if (!(c->options & OPT_BIT(o)))
                continue;
            bool value = option_rows[o].argument && *option_rows[o].argument != '[';
            fprintf(out, "complete -c kc -n '__kc_is %s' -l %s%s -d '", c->verb, option_rows[o].name, value ? " -r" : "");
            quoted(out, option_rows[o].help, false);
            fprintf(out, "'\n");
        }
    }
}

int verb_completion(struct session *s, const struct arguments *a)
{
    static const struct {
        const char *name;
        void (*print)(FILE *out);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    char *text = NULL;
    size_t bytes = 0, i = 0;
    while (i < sizeof shells / sizeof *shells && strcmp(a->word[0], shells[i].name))
        i++;
    if (i == sizeof shells / sizeof *shells)
        return session_fail(s, KC_EXIT_USAGE, "no completion for \"%.40s\"; there are bash, zsh, fish", a->word[0]);
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return session_fail(s, KC_EXIT_SYSTEM, "no memory for the completion");
    shells[i].print(out);
    fclose(out);
    int code = KC_EXIT_OK;
    if (s->json) {
        json_t *o = session_envelope(s);
        json_object_set_new(o, "shell", json_string(shells[i].name));
        json_object_set_new(o, "text", json_string(text));
        code = session_emit(s, o);
    } else {
        fputs(text, s->out);
    }
    free(text);
    return code;
}
