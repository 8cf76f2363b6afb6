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
	title    string
	value    func(T) any
	wideOnly bool // only with -o wide
}

// tableView is the table of a kind of items.
type tableView[T any] struct {
	itemID  func(T) string
	columns []column[T]
}

// columnsFor returns the columns of a format.
func (v tableView[T]) columnsFor(f cli.Format) []column[T] {
	if f == cli.Wide {
		return v.columns
	}
	return slices.DeleteFunc(slices.Clone(v.columns), func(c column[T]) bool { return c.wideOnly })
}

func (v tableView[T]) titles(f cli.Format) (row []string) {
	for _, c := range v.columnsFor(f) {
		row = append(row, c.title)
	}
	return row
}

func (v tableView[T]) cells(f cli.Format, item T) (row []string) {
	for _, c := range v.columnsFor(f) {
		text := fmt.Sprint(c.value(item))
		if text == "" {
			text = "-" // an empty cell would hide a column from tools that split at blanks
		}
		row = append(row, cli.EscapeName(text))
	}
	return row
}

// printList shows a list in the requested format.
func printList[T any](a *Command, got response[[]T], v tableView[T]) error {
	switch a.Output {
	case cli.JSON, cli.YAML:
		return a.Output.WriteDocument(a.Out, got.raw)
	case cli.Name:
		var out strings.Builder
		for _, item := range got.value {
			out.WriteString(cli.EscapeName(v.itemID(item)) + "\n")
		}
		_, err := io.WriteString(a.Out, out.String())
		return err
	}
	rows := [][]string{v.titles(a.Output)}
	for _, item := range got.value {
		rows = append(rows, v.cells(a.Output, item))
	}
	return a.printRows(rows, columnWidths(nil, rows))
}

// printOne shows one item: its details rather than a row.
func printOne[T any](a *Command, got response[T], id string, details func(*cli.Grid, T)) error {
	switch a.Output {
	case cli.JSON, cli.YAML:
		return a.Output.WriteDocument(a.Out, got.raw)
	case cli.Name:
		_, err := fmt.Fprintln(a.Out, id)
		return err
	}
	return a.Output.Write(a.Out, nil, func(g *cli.Grid) { details(g, got.value) })
}

// printDetails shows the columns of an item one below the other.
func printDetails[T any](g *cli.Grid, v tableView[T], item T) {
	for _, c := range v.columns {
		putRow(g, strings.ToLower(c.title), c.value(item))
	}
}

// columnWidths returns the width of every column, at least those of before.
func columnWidths(before []int, rows [][]string) []int {
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

// minColumnWidth is the width below which no column is shortened.
const minColumnWidth = 12

// fitColumns shortens the widest columns until a line has the columns of a terminal, but not the first one: an
// incomplete ID is of no use. Without a terminal it shortens none.
func fitColumns(width []int, columns int) []int {
	out := slices.Clone(width)
	excess := 2 * (len(out) - 1)
	for _, w := range out {
		excess += w
	}
	for excess -= columns; columns > 0 && excess > 0; excess-- {
		widest := 0
		for i := 1; i < len(out); i++ {
			if out[i] > minColumnWidth && (widest == 0 || out[i] > out[widest]) {
				widest = i
			}
		}
		if widest == 0 {
			break
		}
		out[widest]--
	}
	return out
}

// printRows prints lines of a table. On a terminal the lines of a narrow table fit its width: cells of wide columns are
// shortened, and then the end of the last column is missing.
func (a *Command) printRows(rows [][]string, width []int) error {
	columns := 0
	if a.Output == cli.Table {
		columns = cli.Columns(a.Out)
	}
	fitting := fitColumns(width, columns)
	var out bytes.Buffer
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			if fitting[i] < width[i] {
				cell = cli.CutLine(cell, fitting[i])
			}
			fmt.Fprintf(&line, "%-*s  ", fitting[i], cell)
		}
		out.WriteString(cli.CutLine(strings.TrimRight(line.String(), " "), columns) + "\n")
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

// watchList shows a list and from then on the rows that changed, until ctx ends. What the table does
// not show does not count as a change there. As JSON it is one object per line. After the first list
// it retries while the controller is unavailable.
func watchList[T any](ctx context.Context, a *Command, v tableView[T], look func(context.Context) ([]T, error)) error {
	f := listWatcher[T]{command: a, view: v, printedRows: map[string]string{}}
	shown, away := false, false
	for {
		began := time.Now()
		got, err := callAPI(ctx, look)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (!shown || exitCodes[client.CodeOf(err)] != cli.ExitUnreachable):
			return err
		case err != nil && !away:
			a.reportInterrupt(err)
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
	command      *Command
	view         tableView[T]
	printedRows  map[string]string // id -> printed row
	columnWidths []int
}

// itemChange is a line of a watched list as JSON.
type itemChange struct {
	Type string          `json:"type"` // set or gone
	ID   string          `json:"id"`
	Item json.RawMessage `json:"item,omitempty"`
}

// printChange prints new, changed and removed items.
func (f *listWatcher[T]) printChange(got response[[]T]) error {
	var raws []json.RawMessage
	if err := json.Unmarshal(got.raw, &raws); err != nil || len(raws) != len(got.value) {
		return fmt.Errorf("response is not a list: %w", err)
	}
	var rows [][]string
	if f.columnWidths == nil {
		rows = append(rows, f.view.titles(f.command.Output))
	}
	present := map[string]bool{}
	for i, item := range got.value {
		id := f.view.itemID(item)
		present[id] = true
		text, row := string(raws[i]), f.view.cells(f.command.Output, item)
		if f.command.Output != cli.JSON && f.command.Output != cli.YAML {
			text = strings.Join(row, "\t")
		}
		if f.printedRows[id] == text {
			continue
		}
		f.printedRows[id] = text
		rows = append(rows, row)
		if err := f.printDocument(itemChange{"set", id, raws[i]}); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.printedRows)) {
		if !present[id] {
			delete(f.printedRows, id)
			rows = append(rows, []string{cli.EscapeName(id), "gone"})
			if err := f.printDocument(itemChange{"gone", id, nil}); err != nil {
				return err
			}
		}
	}
	if f.command.Output != cli.Table && f.command.Output != cli.Wide {
		return nil
	}
	f.columnWidths = columnWidths(f.columnWidths, rows)
	return f.command.printRows(rows, f.columnWidths)
}

// printDocument prints a change in the formats other than tables.
func (f *listWatcher[T]) printDocument(c itemChange) error {
	switch f.command.Output {
	case cli.JSON, cli.YAML:
		return f.command.printDocument(c)
	case cli.Name:
		if c.Type == "set" {
			_, err := fmt.Fprintln(f.command.Out, cli.EscapeName(c.ID))
			return err
		}
	}
	return nil
}

// printDocument prints one of many documents: a line of JSON, or a document of YAML.
func (a *Command) printDocument(value any) error {
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
	return a.Output.WriteDocument(a.Out, raw)
}

// timeText formats a time; "" for none.
func timeText(t time.Time) string {
	if t.IsZero() || t.Year() == 1 {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

// epochTime converts epoch seconds; 0 is none.
func epochTime(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// putRow adds a row of details unless its value is empty.
func putRow(g *cli.Grid, name string, value any) {
	if text := fmt.Sprint(value); text != "" && text != "0" {
		g.Row(name, text)
	}
}
