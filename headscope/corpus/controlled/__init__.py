"""Controlled English: sentences whose trees and references are known because they were built."""
