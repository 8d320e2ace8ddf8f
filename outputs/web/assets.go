// SPDX-License-Identifier: Apache-2.0

// The console's files, which `make console` builds from the sources in console.

package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

//go:embed dist
var dist embed.FS

// file is a file that is served whole, compressed if the browser accepts it.
type file struct {
	contentType, tag string
	plain, packed    []byte
}

func newFile(contentType string, text []byte) (*file, error) {
	sum := sha256.Sum256(text)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(text)
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return nil, err
	}
	return &file{contentType, `"` + hex.EncodeToString(sum[:12]) + `"`, text, packed.Bytes()}, nil
}

// serve answers with the file, or that the browser's copy is current.
func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("Cache-Control", "no-cache") // a copy is used once its tag has been confirmed
	h.Set("ETag", f.tag)
	h.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	text := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		text = f.packed
	}
	h.Set("Content-Length", fmt.Sprint(len(text)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // fails only if the browser has gone
	}
}

// assets are the files by their URL paths.
type assets map[string]*file

func loadAssets() (assets, error) {
	out := assets{}
	err := fs.WalkDir(dist, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		out[strings.TrimPrefix(name, "dist")], err = newFile(mime.TypeByExtension(path.Ext(name)), text)
		return err
	})
	out["/"] = out["/index.html"]
	return out, err
}

// ServeHTTP serves a file.
func (a assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := a[r.URL.Path]
	if f == nil {
		refuse(w, http.StatusNotFound, fmt.Sprintf("there is no page %.100q; the console begins at /", r.URL.Path))
		return
	}
	f.serve(w, r)
}
