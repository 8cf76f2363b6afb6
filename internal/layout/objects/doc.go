// Package objects stores the metadata of a registry in a bucket: template.json files, the files of versions, scan
// reports and tombstones. The registry's directory is a local copy of them.
//
// It is not the store of layers, and it evaluates no push: the registry decides what is written.
//
// Invariant: the conditional write of the template.json object is the only commit point. The local copy is written
// after it, and Load makes the local copy equal to the bucket before the registry reads it.
//
//	<prefix>vm_dir/<template uuid>/template.json                the same text as on disk
//	<prefix>vm_dir/<template uuid>/<number>-<content id>.json   configuration and nvram of a version
//	<prefix>vm_dir/<template uuid>/.scans/, pulls.log           as on disk
//	<prefix>deleted_dir/<template uuid>                         as on disk
//	<prefix>trash_dir/<epoch nanoseconds>-<template uuid>       marker of a deleted template, whose objects stay
package objects
