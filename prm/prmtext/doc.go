// Package prmtext turns the wire language into text and back.
//
//   - Parse reads command dumps from a kernel log (mlx5_core with debug messages on), whatever dmesg put in front of the
//     lines; Dump.Text prints the same form.
//   - Decode functions (DecodeInput, DecodeOutput, DecodeStruct, DecodeEQE, DecodeCQE, DecodeSendWQE, DecodeReceiveWQE)
//     split bytes into named fields by the tables of package prm; Record.Text prints them with the names of enum values.
//     Bits that no table names are kept as fields called reserved.
//   - Record.Encode puts the fields together again. It gives the bytes that were decoded, whatever they were.
//
// cxkit decode, the flight recorder and failing tests call it. Input may be anything: mistakes come back as errors with
// a line number, and nothing panics.
//
// Sources: linux drivers/net/ethernet/mellanox/mlx5/core/cmd.c (dump_command, dump_buf); snabb
// src/apps/mellanox/trace-mlx5_core.txt.gz for the form older kernels print.
package prmtext
