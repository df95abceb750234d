package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"cxkit/internal/control"
)

// topCommand is `cxkit top`.
type topCommand struct {
	Attach string        `placeholder:"PATH" type:"path" help:"Socket of the card (default: the only one running)."`
	Period time.Duration `default:"1s" placeholder:"TIME" help:"How often the screen changes (default ${default})."`
	Count  int           `placeholder:"N" help:"End after N times (default: at q or Ctrl-C)."`
}

// Help is what cxkit top --help adds.
func (topCommand) Help() string {
	return `Shows what a running card does: its queues, what it drops and why, firmware's commands and pages, and its
health. Watching issues no commands of its own. Where standard output is no terminal, each screen is printed
below the one before.

Keys: q ends, up and down look at other queues.

Examples:
  cxkit top
  cxkit top --count 1 | cat`
}

// Run watches until the user has seen enough.
func (t *topCommand) Run(w *world) error {
	if err := checkPeriod(t.Period, t.Count); err != nil {
		return err
	}
	return attached(w, t.Attach, func(ctx context.Context, c *control.Client) error {
		if w.tty != nil {
			return t.live(ctx, w, c)
		}
		var x topView
		count := t.Count
		if count > 0 {
			count++ // rates need two readings
		}
		return periodically(ctx, t.Period, count, func() error {
			o, err := fresh(ctx, c, x.after())
			if err != nil {
				return err
			}
			if x.next(o); x.readings < 2 {
				return nil
			}
			_, err = fmt.Fprintf(w.out, "%s\n\n", strings.Join(x.text(120, allLines), "\n"))
			return err
		})
	})
}

// topModel is the program that bubbletea runs. It is used by one goroutine.
type topModel struct {
	ctx    context.Context
	card   *control.Client
	period time.Duration
	left   int // readings to come; negative: no end
	view   topView
	after  time.Time                   // how new the next reading has to be; read is the only one to run meanwhile
	size   func() (columns, lines int) // of the terminal, now
	width  int
	height int
	err    error
}

// Messages.
type (
	tickMsg struct{}
	lookMsg struct{} // at the terminal's size
	readMsg struct {
		overview control.Overview
		err      error
	}
)

// live shows the screen until a key, the count or ctx ends it.
func (t *topCommand) live(ctx context.Context, w *world, c *control.Client) error {
	columns, lines := w.tty.size()
	m := &topModel{size: w.tty.size, after: time.Now(), ctx: ctx, card: c, period: t.Period, left: t.Count - 1, width: columns, height: lines}
	if t.Count > 0 {
		m.left++ // rates need two readings
	}
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(w.tty.in), tea.WithOutput(w.out),
		tea.WithoutSignalHandler(), tea.WithWindowSize(columns, lines))
	_, err := p.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		err = nil // the user ended it
	}
	return errors.Join(err, m.err)
}

// Init asks for the first reading.
func (m *topModel) Init() tea.Cmd { return tea.Batch(m.read, look()) }

// lookPeriod is how soon the screen follows the terminal's size. bubbletea, which would be told by a signal, does
// so only where its output is the terminal's file itself.
const lookPeriod = 100 * time.Millisecond

func look() tea.Cmd { return tea.Tick(lookPeriod, func(time.Time) tea.Msg { return lookMsg{} }) }

// read asks the card. bubbletea runs it beside the program, one at a time: the next one is asked for when
// the answer is there.
func (m *topModel) read() tea.Msg {
	o, err := fresh(m.ctx, m.card, m.after)
	return readMsg{o, err}
}

// Update takes a message.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case readMsg:
		if msg.err != nil {
			if m.ctx.Err() == nil {
				m.err = msg.err
			}
			return m, tea.Quit
		}
		m.view.next(msg.overview)
		m.after = m.view.after()
		if m.left == 0 {
			return m, tea.Quit
		}
		m.left--
		return m, tea.Tick(m.period, func(time.Time) tea.Msg { return tickMsg{} })
	case tickMsg:
		return m, m.read
	case lookMsg:
		columns, lines := m.size()
		if columns == m.width && lines == m.height {
			return m, look()
		}
		return m, tea.Batch(look(), func() tea.Msg { return tea.WindowSizeMsg{Width: columns, Height: lines} })
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "ctrl+c", "esc":
			return m, tea.Quit
		case "up", "k":
			m.view.first = max(m.view.first-1, 0)
		case "down", "j":
			m.view.first = min(m.view.first+1, max(m.view.now.Info.Queues-1, 0))
		}
	}
	return m, nil
}

// View is the screen.
func (m *topModel) View() tea.View {
	v := tea.NewView(strings.Join(m.view.text(m.width, m.height), "\n"))
	v.AltScreen = true
	return v
}
