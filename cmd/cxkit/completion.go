package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCommand is `cxkit completion`.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is what cxkit completion --help adds.
func (completionCommand) Help() string {
	return `Examples:
  source <(cxkit completion bash)                                      in ~/.bashrc
  cxkit completion zsh > "${fpath[1]}/_cxkit"
  cxkit completion fish > ~/.config/fish/completions/cxkit.fish`
}

// Run prints the script. It is made of the command line's own description and can't disagree with it.
func (c *completionCommand) Run(w *world) error {
	nodes := leaves(w.model.Node, nil)
	switch c.Shell {
	case "bash":
		return bash(w.out, nodes)
	case "zsh":
		// zsh runs bash completions once bashcompinit is loaded.
		if _, err := io.WriteString(w.out, "#compdef cxkit\nautoload -U +X bashcompinit && bashcompinit\n"); err != nil {
			return err
		}
		return bash(w.out, nodes)
	}
	return fish(w.out, nodes)
}

// node is a command with what may follow it.
type node struct {
	path  []string // ctl, link
	help  string
	words []option // commands, flags and fixed arguments
	files bool     // an argument is a file
}

type option struct {
	word, help string
	values     []string // of a flag: fixed values
	files      bool     // of a flag: its value is a file
	takesValue bool
}

// leaves lists n and all commands below it.
func leaves(n *kong.Node, path []string) []node {
	x := node{path: path, help: n.Help}
	for _, group := range n.AllFlags(true) {
		for _, f := range group {
			x.words = append(x.words, option{
				word: "--" + f.Name, help: f.Help, values: enumOf(f.Value),
				files: isPath(f.Value), takesValue: !f.IsBool() && !f.IsCounter(),
			})
			if f.Tag.Negatable != "" {
				x.words = append(x.words, option{word: "--no-" + f.Name, help: f.Help})
			}
			if f.Short != 0 {
				x.words = append(x.words, option{word: "-" + string(f.Short), help: f.Help})
			}
		}
	}
	for _, arg := range n.Positional {
		for _, v := range enumOf(arg) {
			x.words = append(x.words, option{word: v, help: arg.Help})
		}
		x.files = x.files || isPath(arg)
	}
	var below []node
	for _, child := range n.Children {
		x.words = append(x.words, option{word: child.Name, help: child.Help})
		below = append(below, leaves(child, append(path[:len(path):len(path)], child.Name))...)
	}
	return append([]node{x}, below...)
}

func enumOf(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return strings.Split(v.Enum, ",")
}

func isPath(v *kong.Value) bool { return v.Tag.Type == "path" }

// bash writes a completion function: it finds the command on the line, then the words that may follow.
func bash(out io.Writer, nodes []node) error {
	var b strings.Builder
	b.WriteString("_cxkit() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd= i\n")
	b.WriteString("\tfor ((i = 1; i < COMP_CWORD; i++)); do\n\t\tcase \"$cmd ${COMP_WORDS[i]}\" in\n")
	for _, n := range nodes {
		if len(n.path) > 0 {
			parent, last := strings.Join(n.path[:len(n.path)-1], " "), n.path[len(n.path)-1]
			fmt.Fprintf(&b, "\t\t%q) cmd=%q ;;\n", parent+" "+last, strings.Join(n.path, " "))
		}
	}
	b.WriteString("\t\tesac\n\tdone\n\tcase \"$cmd $prev\" in\n")
	for _, n := range nodes {
		for _, o := range n.words {
			key := strings.Join(n.path, " ") + " " + o.word
			switch {
			case len(o.values) > 0:
				fmt.Fprintf(&b, "\t%q) COMPREPLY=($(compgen -W %q -- \"$cur\")); return ;;\n", key, strings.Join(o.values, " "))
			case o.files:
				fmt.Fprintf(&b, "\t%q) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", key)
			case o.takesValue:
				fmt.Fprintf(&b, "\t%q) COMPREPLY=(); return ;;\n", key)
			}
		}
	}
	b.WriteString("\tesac\n\tcase $cmd in\n")
	for _, n := range nodes {
		words := make([]string, 0, len(n.words))
		for _, o := range n.words {
			words = append(words, o.word)
		}
		files := ""
		if n.files {
			files = " -f"
		}
		fmt.Fprintf(&b, "\t%q) COMPREPLY=($(compgen%s -W %q -- \"$cur\")) ;;\n", strings.Join(n.path, " "), files, strings.Join(words, " "))
	}
	b.WriteString("\tesac\n}\ncomplete -o filenames -F _cxkit cxkit\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// fish writes a line for each word.
func fish(out io.Writer, nodes []node) error {
	var b strings.Builder
	b.WriteString("complete -c cxkit -f\n")
	for _, n := range nodes {
		when := "__fish_use_subcommand"
		if len(n.path) > 0 {
			when = "__fish_seen_subcommand_from " + n.path[0]
			for _, p := range n.path[1:] {
				when += "; and __fish_seen_subcommand_from " + p
			}
		}
		for _, o := range n.words {
			fmt.Fprintf(&b, "complete -c cxkit -n %q", when)
			switch {
			case strings.HasPrefix(o.word, "--"):
				fmt.Fprintf(&b, " -l %s", o.word[2:])
			case strings.HasPrefix(o.word, "-"):
				fmt.Fprintf(&b, " -s %s", o.word[1:])
			default:
				fmt.Fprintf(&b, " -a %s", o.word)
			}
			switch {
			case len(o.values) > 0:
				fmt.Fprintf(&b, " -x -a %q", strings.Join(o.values, " "))
			case o.files:
				b.WriteString(" -r -F")
			case o.takesValue:
				b.WriteString(" -x")
			}
			fmt.Fprintf(&b, " -d %q\n", strings.NewReplacer(`$`, ``, "`", "'").Replace(o.help))
		}
		if n.files {
			fmt.Fprintf(&b, "complete -c cxkit -n %q -F\n", when)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}
