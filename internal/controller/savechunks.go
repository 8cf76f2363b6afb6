package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	pieceBytes    = 512 << 10 // of output in one chunk, so that it fits a transaction
	maxSaveOutput = 1 << 20   // of stdout and of stderr each, the last ones
	maxAllOutput  = 64 << 20  // of all requests together
)

// The chunks of a request.
const (
	pieceScript = record.SaveScript
	pieceStdout = "out"
	pieceStderr = "err"
)

func outputPiece(request, stream string, n int) string {
	return fmt.Sprintf("%s.%s.%d", request, stream, n)
}

// requestOf returns the request of a chunk, and what part of it the chunk is.
func requestOf(piece string) (request, what string) {
	request, what, _ = strings.Cut(piece, ".")
	what, _, _ = strings.Cut(what, ".")
	return request, what
}

// keepOutput stores the output of a save's script. It is called before the record that refers to it
// is written, and may be repeated.
func (c *Controller) keepOutput(ctx context.Context, request string, script *api.ScriptStatus) error {
	for _, stream := range []struct{ name, text string }{{pieceStdout, script.Stdout}, {pieceStderr, script.Stderr}} {
		data := farm.LastOutput([]byte(stream.text), maxSaveOutput, false)
		for n := 0; len(data) > 0; n++ {
			part := data[:min(len(data), pieceBytes)]
			data = data[len(part):]
			piece := &record.SaveChunk{Made: c.now(), Data: part}
			if err := c.store.Commit(ctx, store.Put(c.tables.SaveChunks, outputPiece(request, stream.name, n), piece,
				store.Any)); err != nil {
				return err
			}
		}
	}
	return nil
}

// withOutput returns a request with the last bytes of its script's output.
func (c *Controller) withOutput(s *farm.SaveRequest, limit int) *farm.SaveRequest {
	if s.Script == nil {
		return s
	}
	n, script := *s, *s.Script
	n.Script = &script
	var outFits, errFits bool
	script.Stdout, outFits = c.output(s.ID, pieceStdout, s.StdoutBytes)
	script.Stderr, errFits = c.output(s.ID, pieceStderr, s.StderrBytes)
	if !outFits || !errFits {
		script.Errors = append(slices.Clip(script.Errors), "the output was removed to free space for newer requests")
	}
	script.Stdout, script.Stderr = farm.LastOutput(script.Stdout, limit, false),
		farm.LastOutput(script.Stderr, limit, false)
	return &n
}

// output joins the chunks of a stream; ok is false when some of it was removed.
func (c *Controller) output(request, stream string, size int) (data []byte, ok bool) {
	for n := 0; len(data) < size; n++ {
		piece, _, ok := c.tables.SaveChunks.Get(outputPiece(request, stream, n))
		if !ok {
			return nil, false
		}
		data = append(data, piece.Data...)
	}
	return data, true
}
