package payloads

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	chunkBytes = 512 << 10        // of output in one chunk, so that it fits a transaction
	chunkAge   = 10 * time.Minute // after which a chunk without a request is removed

	// MaxOutput is how many bytes of stdout and of stderr of a save are stored, the last ones.
	MaxOutput = record.MaxSaveOutput
	// DefaultMaxOutput is the default of the bytes of the output of all saves.
	DefaultMaxOutput = 64 << 20
)

// The chunks of a save request.
const (
	chunkScript = record.SaveScript
	chunkStdout = "out"
	chunkStderr = "err"
)

func outputID(request, stream string, n int) string {
	return fmt.Sprintf("%s.%s.%d", request, stream, n)
}

// splitChunkID returns the request of a chunk, and which part of it the chunk is.
func splitChunkID(id string) (request, part string) {
	request, part, _ = strings.Cut(id, ".")
	part, _, _ = strings.Cut(part, ".")
	return request, part
}

// StoreSaveScript stores the script of a save. It is called before the save request is written.
func (p *Payloads) StoreSaveScript(ctx context.Context, request string, text []byte) error {
	return p.db.Store.Commit(ctx, store.Put(p.db.Tables.SaveChunks, record.SaveScriptID(request),
		&record.SaveChunk{Made: p.db.Now(), Data: text}, store.IfAbsent))
}

// StoreOutput stores the output of a save's script. It is called before the record that refers to it
// is written, and may be repeated.
func (p *Payloads) StoreOutput(ctx context.Context, request string, script *api.ScriptStatus) error {
	for _, stream := range []struct{ name, text string }{{chunkStdout, script.Stdout}, {chunkStderr, script.Stderr}} {
		data := farm.LastOutput([]byte(stream.text), MaxOutput, false)
		for n := 0; len(data) > 0; n++ {
			part := data[:min(len(data), chunkBytes)]
			data = data[len(part):]
			chunk := &record.SaveChunk{Made: p.db.Now(), Data: part}
			if err := p.db.Store.Commit(ctx, store.Put(p.db.Tables.SaveChunks, outputID(request, stream.name, n), chunk,
				store.Any)); err != nil {
				return err
			}
		}
	}
	return nil
}

// WithOutput returns a save request with the last bytes of its script's output.
func (p *Payloads) WithOutput(s *farm.SaveRequest, limit int) *farm.SaveRequest {
	if s.Script == nil {
		return s
	}
	n, script := *s, *s.Script
	n.Script = &script
	var hasStdout, hasStderr bool
	script.Stdout, hasStdout = p.output(s.ID, chunkStdout, s.StdoutBytes)
	script.Stderr, hasStderr = p.output(s.ID, chunkStderr, s.StderrBytes)
	if !hasStdout || !hasStderr {
		script.Errors = append(slices.Clip(script.Errors), "the output was removed to free space for newer requests")
	}
	script.Stdout = farm.LastOutput(script.Stdout, limit, false)
	script.Stderr = farm.LastOutput(script.Stderr, limit, false)
	return &n
}

// output joins the chunks of a stream; ok is false when some of it was removed.
func (p *Payloads) output(request, stream string, size int) (data []byte, ok bool) {
	for n := 0; len(data) < size; n++ {
		chunk, _, ok := p.db.Tables.SaveChunks.Get(outputID(request, stream, n))
		if !ok {
			return nil, false
		}
		data = append(data, chunk.Data...)
	}
	return data, true
}

// PruneChunks removes the chunks that are no longer needed: scripts of save requests that have ended,
// everything of requests that are removed, and the oldest output when there is too much of it.
func (p *Payloads) PruneChunks(ctx context.Context, w *record.Term, now time.Time) error {
	excess := -p.maxOutput
	for id, chunk := range p.db.Tables.SaveChunks.All() {
		if _, part := splitChunkID(id); part != chunkScript {
			excess += len(chunk.Data)
		}
	}
	for id, chunk := range p.db.Tables.SaveChunks.All() {
		request, part := splitChunkID(id)
		s, _, ok := p.db.Tables.Saves.Get(request)
		script := part == chunkScript
		switch {
		case !ok && now.Sub(chunk.Made) >= chunkAge: // the request may be written until then
		case ok && script && s.Status != farm.SavePending:
		case !script && excess > 0:
		default:
			continue
		}
		if !script {
			excess -= len(chunk.Data)
		}
		if err := w.Commit(ctx, store.Delete(p.db.Tables.SaveChunks, id, store.Any)); err != nil {
			return err
		}
	}
	return nil
}
