package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/loadgen"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/etcd"
)

// bare is the least that a durable create can cost over HTTP: it reads a request,
// makes an id, commits one record and answers.
type bare struct {
	store   *store.Store
	records *store.Table[record]
}

// record is what the bare handler keeps, with a text that makes it recordSize bytes.
type record struct {
	ID      string                `json:"id"`
	Created time.Time             `json:"created"`
	Order   loadgen.CreateRequest `json:"order"`
	Text    string                `json:"text"`
}

const recordSize = 1536

// serveBare serves the bare handler until the context ends.
func serveBare(ctx context.Context, address, dir string) (err error) {
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	backend, err := etcd.StartEmbedded(ctx, etcd.EmbeddedOptions{Dir: dir, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	h := &bare{records: store.NewTable[record]("record")}
	h.store, err = store.Open(ctx, backend,
		store.Options{Prefix: "/bare", Replica: "bare", Logger: log, Tables: []store.AnyTable{h.records}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.store.Close()) }()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST "+loadgen.InstancesPath, answering(h.create))
	mux.HandleFunc("DELETE "+loadgen.InstancesPath, answering(h.clear))
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func answering(do func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := do(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		raw, err := json.Marshal(api.Envelope[any]{Status: api.StatusOK, Body: body})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(raw)
	}
}

func (h *bare) create(r *http.Request) (any, error) {
	raw, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	v := &record{ID: id.String(), Created: time.Now()}
	if err := json.Unmarshal(raw, &v.Order); err != nil {
		return nil, err
	}
	v.Text = padding[:max(0, recordSize-len(raw)-150)]
	return []string{v.ID}, h.store.Commit(r.Context(), store.Put(h.records, v.ID, v, store.Any))
}

var padding = strings.Repeat("x", recordSize)

// clear removes every record, so that each round meets an empty table.
func (h *bare) clear(r *http.Request) (any, error) {
	const most = 100 // deletes of one transaction
	var changes []store.Change
	flush := func() error {
		if len(changes) == 0 {
			return nil
		}
		err := h.store.Commit(r.Context(), changes...)
		changes = nil
		if err != nil {
			return fmt.Errorf("clear: %w", err)
		}
		return nil
	}
	for id := range h.records.All() {
		changes = append(changes, store.Delete(h.records, id, store.Any))
		if len(changes) == most {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	return nil, flush()
}
