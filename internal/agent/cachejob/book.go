package cachejob

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
)

// jobFile is the content of the file: the cache jobs that are not over. A node without it is told
// everything again; it is kept so that pulls go on also while the controller is away.
type jobFile struct {
	Node    string         `json:"node"`
	Errands []api.CacheJob `json:"errands"`
}

// load reads what an earlier agent has left.
func (r *Runner) load() []api.CacheJob {
	if r.o.File == "" {
		return nil
	}
	raw, err := os.ReadFile(r.o.File)
	var b jobFile
	if err == nil {
		err = json.Unmarshal(raw, &b)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.o.Logger.Error("what was to be done with templates cannot be read; the controller says it again", "error", err)
		}
		return nil
	}
	if b.Node != r.o.Node {
		return nil
	}
	return b.Errands[:min(len(b.Errands), maxErrands)]
}

// save writes what is not over. A disk without room for it costs nothing now: the next
// agent is told everything again.
func (r *Runner) save() {
	if r.o.File == "" {
		return
	}
	r.saving.Lock()
	defer r.saving.Unlock()
	b := jobFile{Node: r.o.Node, Errands: []api.CacheJob{}}
	r.mu.Lock()
	for _, e := range r.entries {
		if !e.over() {
			b.Errands = append(b.Errands, e.order)
		}
	}
	r.mu.Unlock()
	slices.SortFunc(b.Errands, func(x, y api.CacheJob) int { return strings.Compare(x.ID, y.ID) })
	raw, err := json.Marshal(b)
	if err == nil {
		err = datadir.WriteFile(r.o.File, raw)
	}
	if err != nil {
		r.o.Logger.Warn("what is to be done with templates is not on disk", "error", err)
	}
}
