package cloud

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
)

// column is one column of a table.
type column[T any] struct {
	head string
	cell func(T) any
	wide bool // only with -o wide
}

// view is the table of a kind of items.
type view[T any] struct {
	id      func(T) string
	columns []column[T]
}

// chosen returns the columns of a format.
func (v view[T]) chosen(f cli.Format) []column[T] {
	if f == cli.Wide {
		return v.columns
	}
	return slices.DeleteFunc(slices.Clone(v.columns), func(c column[T]) bool { return c.wide })
}

func (v view[T]) heads(f cli.Format) (row []string) {
	for _, c := range v.chosen(f) {
		row = append(row, c.head)
	}
	return row
}

func (v view[T]) cells(f cli.Format, item T) (row []string) {
	for _, c := range v.chosen(f) {
		text := fmt.Sprint(c.cell(item))
		if text == "" {
			text = "-" // an empty cell would hide a column from tools that split at blanks
		}
		row = append(row, cli.Plain(text))
	}
	return row
}

// list shows a list in the requested format.
func list[T any](a *Command, got answer[[]T], v view[T]) error {
	switch a.Output {
	case cli.JSON, cli.YAML:
		return a.Output.Document(a.Out, got.raw)
	case cli.Name:
		var out strings.Builder
		for _, item := range got.value {
			out.WriteString(cli.Plain(v.id(item)) + "\n")
		}
		_, err := io.WriteString(a.Out, out.String())
		return err
	}
	rows := [][]string{v.heads(a.Output)}
	for _, item := range got.value {
		rows = append(rows, v.cells(a.Output, item))
	}
	return a.rows(rows, widths(nil, rows))
}

// single shows one item: its details rather than a row.
func single[T any](a *Command, got answer[T], id string, details func(*cli.Grid, T)) error {
	switch a.Output {
	case cli.JSON, cli.YAML:
		return a.Output.Document(a.Out, got.raw)
	case cli.Name:
		_, err := fmt.Fprintln(a.Out, id)
		return err
	}
	return a.Output.Write(a.Out, nil, func(g *cli.Grid) { details(g, got.value) })
}

// details shows the columns of an item one below the other.
func details[T any](g *cli.Grid, v view[T], item T) {
	for _, c := range v.columns {
		put(g, strings.ToLower(c.head), c.cell(item))
	}
}

// widths returns the width of every column, at least those of before.
func widths(before []int, rows [][]string) []int {
	out := slices.Clone(before)
	for _, row := range rows {
		for i, cell := range row {
			if i == len(out) {
				out = append(out, 0)
			}
			out[i] = max(out[i], len([]rune(cell)))
		}
	}
	return out
}

// rows prints lines of a table.
func (a *Command) rows(rows [][]string, width []int) error {
	var out bytes.Buffer
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", width[i], cell)
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := a.Out.Write(out.Bytes())
	return err
}

// watchEvery is the polling interval of a watched list. A long list is polled less often: polling
// takes at most a fixed share of the time.
const (
	watchEvery = 2 * time.Second
	watchPart  = 5
)

// follow shows a list and from then on the rows that changed, until ctx ends. What the table does
// not show does not count as a change there. As JSON it is one object per line. After the first list
// it retries while the controller is unavailable.
func follow[T any](ctx context.Context, a *Command, v view[T], look func(context.Context) ([]T, error)) error {
	f := listWatcher[T]{a: a, view: v, last: map[string]string{}}
	shown, away := false, false
	for {
		began := time.Now()
		got, err := ask(ctx, look)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (!shown || exits[client.CodeOf(err)] != cli.ExitUnreachable):
			return err
		case err != nil && !away:
			a.interrupted(err)
		case err == nil:
			if err := f.printChange(got); err != nil {
				return err
			}
			shown = true
		}
		away = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(watchEvery, watchPart*time.Since(began))):
		}
	}
}

// listWatcher keeps the rows that were printed.
type listWatcher[T any] struct {
	a     *Command
	view  view[T]
	last  map[string]string // id -> printed row
	width []int
}

// change is a line of a watched list as JSON.
type change struct {
	Type string          `json:"type"` // set or gone
	ID   string          `json:"id"`
	Item json.RawMessage `json:"item,omitempty"`
}

// printChange prints new, changed and removed items.
func (f *listWatcher[T]) printChange(got answer[[]T]) error {
	var raws []json.RawMessage
	if err := json.Unmarshal(got.raw, &raws); err != nil || len(raws) != len(got.value) {
		return fmt.Errorf("response is not a list: %w", err)
	}
	var rows [][]string
	if f.width == nil {
		rows = append(rows, f.view.heads(f.a.Output))
	}
	present := map[string]bool{}
	for i, item := range got.value {
		id := f.view.id(item)
		present[id] = true
		text, row := string(raws[i]), f.view.cells(f.a.Output, item)
		if f.a.Output != cli.JSON && f.a.Output != cli.YAML {
			text = strings.Join(row, "\t")
		}
		if f.last[id] == text {
			continue
		}
		f.last[id] = text
		rows = append(rows, row)
		if err := f.print(change{"set", id, raws[i]}); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.last)) {
		if !present[id] {
			delete(f.last, id)
			rows = append(rows, []string{cli.Plain(id), "gone"})
			if err := f.print(change{"gone", id, nil}); err != nil {
				return err
			}
		}
	}
	if f.a.Output != cli.Table && f.a.Output != cli.Wide {
		return nil
	}
	f.width = widths(f.width, rows)
	return f.a.rows(rows, f.width)
}

// print prints a change in the formats other than tables.
func (f *listWatcher[T]) print(c change) error {
	switch f.a.Output {
	case cli.JSON, cli.YAML:
		return f.a.line(c)
	case cli.Name:
		if c.Type == "set" {
			_, err := fmt.Fprintln(f.a.Out, cli.Plain(c.ID))
			return err
		}
	}
	return nil
}

// line prints one of many documents: a line of JSON, or a document of YAML.
func (a *Command) line(value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if a.Output == cli.JSON {
		_, err := a.Out.Write(append(raw, '\n'))
		return err
	}
	if _, err := fmt.Fprintln(a.Out, "---"); err != nil {
		return err
	}
	return a.Output.Document(a.Out, raw)
}

// when formats a time; "" for none.
func when(t time.Time) string {
	if t.IsZero() || t.Year() == 1 {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

// epoch converts epoch seconds; 0 is none.
func epoch(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// put adds a row of details unless its value is empty.
func put(g *cli.Grid, name string, value any) {
	if text := fmt.Sprint(value); text != "" && text != "0" {
		g.Row(name, text)
	}
}
