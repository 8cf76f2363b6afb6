package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/buildyard/buildyard/internal/scan/vulndb/input"
)

const (
	headBytes    = 64 << 10
	maxFileBytes = 16 << 20 // bytes of a file with one record
	linesBytes   = 64 << 10 // bytes of lines that are parsed together
)

// FileCounts counts the files of an input.
type FileCounts struct {
	Files   int // that were feeds
	Ignored int // other files
}

// Read emits the items of a file or directory. A file that is damaged in the middle is passed to
// reject, and the next one follows.
func Read(ctx context.Context, from string, emit func(Item) error, reject func(Rejection)) (FileCounts, error) {
	var n FileCounts
	err := input.Walk(ctx, from, func(f input.File) error {
		head, err := f.Peek(headBytes)
		if err != nil && !errors.Is(err, io.EOF) && len(head) == 0 {
			return err
		}
		kind := recognizeFormat(path.Ext(f.Name), head)
		if kind == "" {
			n.Ignored++
			return nil
		}
		n.Files++
		var refused error // by the caller; the file is good
		err = readFile(f, kind, func(it Item) error {
			refused = emit(it)
			return refused
		})
		if err != nil && refused == nil {
			reject(Rejection{Feed: string(kind), Record: f.Name, Reason: shortError(err)})
		}
		return refused
	})
	return n, err
}

func readFile(f input.File, kind Kind, emit func(Item) error) error {
	it := Item{Kind: kind, Name: f.Name, Time: f.Time}
	switch kind {
	case kindNVD, kindKEV:
		return emitElements(f, it, emit)
	case kindTracker:
		return emitTracker(f, it, emit)
	case kindEPSS:
		return emitLines(f, it, emit)
	}
	data, err := readWhole(f)
	if err != nil {
		return err
	}
	it.Data = data
	return emit(it)
}

// readWhole reads a file with one record.
func readWhole(f input.File) ([]byte, error) {
	var b bytes.Buffer
	if f.Size > 0 && f.Size < maxFileBytes {
		b.Grow(int(f.Size) + bytes.MinRead)
	}
	n, err := io.Copy(&b, io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if n > maxFileBytes {
		return nil, fmt.Errorf("the record has more than %d MiB", maxFileBytes>>20)
	}
	return b.Bytes(), nil
}

// emitLines emits the lines of a table in bundles, without its header.
func emitLines(f input.File, it Item, emit func(Item) error) error {
	var b bytes.Buffer
	send := func() error {
		it.Data = bytes.Clone(b.Bytes())
		b.Reset()
		if len(bytes.TrimSpace(it.Data)) == 0 {
			return nil
		}
		return emit(it)
	}
	for {
		line, err := f.ReadSlice('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		switch {
		case bytes.HasPrefix(line, []byte("#")):
			if t := epssDate(string(line)); !t.IsZero() {
				it.Time = t
			}
		case !bytes.HasPrefix(line, []byte("cve,")):
			b.Write(line)
		}
		if b.Len() > linesBytes || err != nil && b.Len() > 0 {
			if err := send(); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}
