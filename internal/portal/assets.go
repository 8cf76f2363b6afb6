package portal

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

// assetDir is where the files are in assetFiles.
const assetDir = "assets/"

//go:embed assets
var assetFiles embed.FS

// asset is a file that pages use, as it is sent.
type asset struct {
	mediaType string // its media type
	size      int    // of the plain form, in bytes
	gzipped   []byte // nil where that saves nothing
	plain     []byte // of the joined file; nil for the others, whose plain form is read from the program
}

// assets are all files that pages use, under a path that names their content: a browser keeps
// them permanently, and a newer program's pages never use older ones.
type assets struct {
	pathPrefix string // of their paths
	byName     map[string]*asset
}

// mediaTypes are the media types of the files; the system's own list may differ.
var mediaTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", ".woff2": "font/woff2",
}

var loadAssets = sync.OnceValue(func() *assets {
	a := &assets{byName: map[string]*asset{}}
	sum := sha256.New()
	err := fs.WalkDir(assetFiles, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := assetFiles.ReadFile(name)
		if err != nil {
			return err
		}
		kind := mediaTypes[path.Ext(name)]
		if kind == "" {
			return nil // licenses: they are in the program, and no page uses them
		}
		_, _ = sum.Write([]byte(name + "\x00"))
		_, _ = sum.Write(text)
		a.byName[strings.TrimPrefix(name, assetDir)] = newAsset(kind, text)
		return nil
	})
	if err != nil {
		panic(err) // the files are in the program
	}
	a.byName[stylesheet] = joinFiles(stylesheetFiles)
	a.pathPrefix = "/assets/" + hex.EncodeToString(sum.Sum(nil)[:8]) + "/"
	return a
})

// stylesheet is the style of all pages in one file: a browser shows nothing before it has every one.
const stylesheet = "css/portal.css"

// stylesheetFiles are the files that sheet is made of, in their order.
var stylesheetFiles = []string{
	"css/tokens.css", "css/base.css", "css/layout.css", "css/controls.css", "css/data.css", "css/filter.css",
	"css/notices.css", "css/forms.css", "css/views.css", "css/narrow.css",
}

// joinFiles makes one file of several.
func joinFiles(names []string) *asset {
	var all []byte
	for _, name := range names {
		text, err := assetFiles.ReadFile(assetDir + name)
		if err != nil {
			panic(err) // the files are in the program
		}
		all = append(append(all, text...), '\n')
	}
	a := newAsset(mediaTypes[".css"], all)
	a.plain = all
	return a
}

func newAsset(kind string, text []byte) *asset {
	a := &asset{mediaType: kind, size: len(text)}
	if _, _, err := mime.ParseMediaType(kind); err != nil || strings.HasPrefix(kind, "font/") {
		return a
	}
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	_, _ = w.Write(text) // into memory
	_ = w.Close()
	if packed.Len() < len(text) {
		a.gzipped = packed.Bytes()
	}
	return a
}

// ServeHTTP sends a file.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, current := strings.CutPrefix(r.URL.Path, a.pathPrefix)
	file := a.byName[name]
	if !current || file == nil {
		http.Error(w, "File not found. The page may be of an older version: reload it.", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", file.mediaType)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	if file.gzipped != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(file.gzipped)))
		_, _ = w.Write(file.gzipped)
		return
	}
	h.Set("Content-Length", strconv.Itoa(file.size))
	if file.plain != nil {
		_, _ = w.Write(file.plain)
		return
	}
	if f, err := assetFiles.Open(assetDir + name); err == nil { // they are in the program
		_, _ = io.Copy(w, f)
		_ = f.Close()
	}
}
