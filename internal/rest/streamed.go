package rest

import (
	"bufio"
	"io"
	"net/http"

	"github.com/klauspost/compress/gzip"
)

// WriteStreamed writes the successful response of a RawHandlerFunc whose body is too long to keep in memory.
// body writes it as JSON. The tag consists of characters that need no quoting, and differs for different
// bodies. An error of body breaks the connection, so that a client does not take a partial body for the whole.
func WriteStreamed(w http.ResponseWriter, r *http.Request, tag string, body func(io.Writer) error) {
	packed := packs(w, r, packFrom) // sets the Vary header, also when the body is not sent
	if unchanged(w, r, tag) {
		return
	}
	w.Header()["Content-Type"] = jsonType
	if packed {
		w.Header()["Content-Encoding"] = []string{"gzip"}
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	out := bufio.NewWriterSize(w, pieceBuffer)
	err := writeLong(out, packed, body)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// writeLong writes the envelope around a body.
func writeLong(out io.Writer, packed bool, body func(io.Writer) error) error {
	if packed {
		pack, _ := packers.Get().(*gzip.Writer)
		defer packers.Put(pack)
		pack.Reset(out)
		if err := writeLong(pack, false, body); err != nil {
			return err
		}
		return pack.Close()
	}
	if _, err := io.WriteString(out, begin); err != nil {
		return err
	}
	if err := body(out); err != nil {
		return err
	}
	_, err := io.WriteString(out, end)
	return err
}
