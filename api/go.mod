module github.com/buildyard/buildyard/api

go 1.26.0
